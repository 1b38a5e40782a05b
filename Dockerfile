# Two images: `docker build --target sidecar -t bundlekeel .` (the default is the same) and `--target spark` for the
# nightly recalibration. Run in the root of the source tree.
# What was run on which engine is said in docs/operations/docker.md.

ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# --- everything that needs pip; nothing of it but two virtual environments reaches the images

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
# runtime, or otel: the same and what sends traces.
ARG LOCK=runtime
COPY requirements/runtime.lock requirements/otel.lock requirements/build.lock requirements/
# The locks hold the hash of every file, those of the build tools as well: a few distributions (pure-sasl, pyspark) are
# published as source only. Without pip the finished environment cannot install anything by itself.
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements/build.lock \
 && /opt/build/bin/pip wheel --require-hashes --no-build-isolation --wheel-dir /locked -r "requirements/${LOCK}.lock" \
 && python -m venv --without-pip /opt/bundlekeel \
 && pip --python /opt/bundlekeel/bin/python install --no-deps --no-index /locked/*.whl
COPY pyproject.toml README.md LICENSE ./
COPY service service
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
 && pip --python /opt/bundlekeel/bin/python install --no-deps --no-index /wheel/*.whl \
 && /opt/bundlekeel/bin/python -m compileall -q /opt/bundlekeel/lib

FROM build AS build-spark
COPY requirements/spark.lock requirements/
RUN /opt/build/bin/pip wheel --require-hashes --no-build-isolation --wheel-dir /locked-spark -r requirements/spark.lock \
 && python -m venv --without-pip /opt/spark-env \
 && pip --python /opt/spark-env/bin/python install --no-deps --no-index /locked-spark/*.whl /wheel/*.whl

# --- the nightly job: the same wheel, with pyspark and a Java runtime

FROM ${PYTHON_IMAGE} AS spark
LABEL org.opencontainers.image.title="bundlekeel-spark" \
      org.opencontainers.image.description="Nightly recalibration of Bundlekeel from recorded history, on Spark" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
# Debian's newest point release of this line: a pinned patch release would vanish from the mirrors.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10000 --user-group --no-create-home --home-dir /var/lib/bundlekeel --shell /usr/sbin/nologin bundlekeel \
 && install -d -o bundlekeel -g bundlekeel /var/lib/bundlekeel \
 && python -m pip uninstall --yes --quiet --root-user-action=ignore setuptools wheel pip
COPY --from=build-spark /opt/spark-env /opt/spark-env
COPY deploy/image/spark-entrypoint.sh /opt/entrypoint.sh
# Without SPARK_HOME, Spark's scripts ask this Python where pyspark is. matplotlib caches fonts, and the root may be
# read-only.
ENV PATH=/opt/spark-env/bin:$PATH \
    PYSPARK_PYTHON=/opt/spark-env/bin/python \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONDONTWRITEBYTECODE=1
USER 10000:10000
WORKDIR /var/lib/bundlekeel
# A job ends by itself; master and worker of docker-compose.yml name their own check.
HEALTHCHECK NONE
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/entrypoint.sh"]
CMD ["recalibrate", "--help"]

# --- the sidecar, last, so that it is what a plain `docker build` makes

FROM ${PYTHON_IMAGE} AS sidecar
LABEL org.opencontainers.image.title="bundlekeel" \
      org.opencontainers.image.description="A load balancer sidecar for Apache Pulsar" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
# The number is that of Pulsar's own image: beside a broker both may use the sidecar's unix socket, and no other user.
# The base image's pip goes: nothing is installed into a running container.
RUN useradd --uid 10000 --user-group --no-create-home --home-dir /var/lib/bundlekeel --shell /usr/sbin/nologin bundlekeel \
 && install -d -o bundlekeel -g bundlekeel /var/lib/bundlekeel /run/bundlekeel \
 && python -m pip uninstall --yes --quiet --root-user-action=ignore setuptools wheel pip
COPY --from=build /opt/bundlekeel /opt/bundlekeel
COPY deploy/image/healthcheck.py /opt/bundlekeel/healthcheck.py
ENV PATH=/opt/bundlekeel/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    BUNDLEKEEL_CONFIG=/etc/bundlekeel/settings.yaml
USER 10000:10000
# With a read-only root file system these two, as tmpfs or volume, are all that must be writable.
WORKDIR /var/lib/bundlekeel
VOLUME ["/var/lib/bundlekeel", "/run/bundlekeel"]
EXPOSE 8090
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "/opt/bundlekeel/healthcheck.py"]
ENTRYPOINT ["bundlekeel"]
CMD ["run"]
