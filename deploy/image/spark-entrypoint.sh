#!/bin/sh
# The role of a container of the Spark image: the job, a standalone master or worker, or an executor that a driver in
# Kubernetes requested (Spark then calls this with `executor` and passes the rest in SPARK_* variables).
set -eu
role="$1"
shift
case "$role" in
  recalibrate)
    exec bundlekeel-recalibrate "$@"
    ;;
  master)
    exec spark-class org.apache.spark.deploy.master.Master "$@"
    ;;
  worker)
    exec spark-class org.apache.spark.deploy.worker.Worker "$@"
    ;;
  executor)
    exec spark-class org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "$role" "$@"
    ;;
esac
