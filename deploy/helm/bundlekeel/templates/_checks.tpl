{{/* Combinations of values that render and cannot work, each refused with the value and the way out. */}}
{{- define "bundlekeel.checks" -}}
{{- include "bundlekeel.checkNames" . -}}
{{- include "bundlekeel.checkSettings" . -}}
{{- include "bundlekeel.checkHistory" . -}}
{{- include "bundlekeel.checkSidecar" . -}}
{{- include "bundlekeel.checkJobs" . -}}
{{- include "bundlekeel.checkNetwork" . -}}
{{- end }}

{{- define "bundlekeel.checkNames" -}}
{{- $name := include "bundlekeel.fullname" . -}}
{{- if regexMatch "^[0-9]|\\." $name -}}
{{- fail (printf "%q cannot be the name of a Service (no dot, and no digit first): set fullnameOverride" $name) -}}
{{- end -}}
{{- range $value := list "commonLabels" "podLabels" -}}
{{- range $key, $_ := index $.Values $value -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|version|managed-by|component)|helm\\.sh/chart)$" $key -}}
{{- fail (printf "%s: the chart sets the label %s itself, and selects pods by it: leave it out" $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.kubernetesEvents.enabled (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false, so kubernetesEvents would give its right to the account `default`, and to every pod with it: set serviceAccount.name" -}}
{{- end -}}
{{- if include "bundlekeel.sparkOnKubernetes" . -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.recalibrate.spark.account) -}}
{{- fail "serviceAccount.create is false, and Spark's driver needs an account that may create pods: set recalibrate.spark.account" -}}
{{- end -}}
{{- if eq (include "bundlekeel.driverAccount" .) (include "bundlekeel.serviceAccount" .) -}}
{{- fail "recalibrate.spark.account is the account of the sidecars, which would get the right to create pods: name another one" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What the chart sets everywhere (Service, probes, NOTES) cannot be something else in the file alone; a ConfigMap is no
     place for secrets. */}}
{{- define "bundlekeel.checkSettings" -}}
{{- $owned := dict
  "cluster" "set pulsar.cluster"
  "mode" "set mode"
  "metadata_store" "set pulsar.metadataStore"
  "configuration_store" "set pulsar.configurationStore"
  "api.port" "set api.port"
  "api.socket" "leave it out: probes and the brokers' hook use the chart's"
  "api.advertised_url" "set api.advertisedHost"
  "api.tls.cert_file" "set api.tls.existingSecret"
  "api.tls.key_file" "set api.tls.existingSecret"
  "history.uri" "set history.uri"
  "admin.token" "a ConfigMap is no place for secrets: name a Secret in pulsar.jwt.existingSecret"
  "store.sasl_password" "a ConfigMap is no place for secrets: name a Secret in pulsar.sasl.existingSecret"
  "prometheus.token" "a ConfigMap is no place for secrets: mount a Secret with extraVolumes, and set settings.prometheus.token_file"
-}}
{{- range $path, $instead := $owned -}}
{{- $at := $.Values.settings -}}
{{- range splitList "." $path -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = "" -}}{{- end -}}
{{- end -}}
{{- if ne (toString $at) "" -}}
{{- fail (printf "settings.%s: %s" $path $instead) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.pulsar.sasl.existingSecret (not (dig "store" "sasl_username" "" .Values.settings)) -}}
{{- fail "pulsar.sasl.existingSecret holds the password alone: set settings.store.sasl_username" -}}
{{- end -}}
{{- if and .Values.journal.existingClaim (dig "journal" "path" "" .Values.settings) -}}
{{- fail "settings.journal.path: leave it out: with journal.existingClaim each pod writes /journal/{pod}.jsonl" -}}
{{- end -}}
{{- range dig "notify" "webhooks" list .Values.settings -}}
{{- if .url -}}
{{- fail "settings.notify.webhooks: url may hold a secret, and a ConfigMap is no place for one: mount a Secret with extraVolumes, and set url_file" -}}
{{- end -}}
{{- end -}}
{{- range $value := list "metadataStore" "configurationStore" -}}
{{- if regexMatch "^(etcd|oxia|rocksdb|memory|raft):" (index $.Values.pulsar $value) -}}
{{- fail (printf "pulsar.%s: only ZooKeeper is supported, as in zk:pulsar-zookeeper:2181/chroot" $value) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.api.tls.requireClientCertificate (not .Values.api.tls.existingSecret) -}}
{{- fail "api.tls.requireClientCertificate needs a certificate to serve with: set api.tls.existingSecret" -}}
{{- end -}}
{{- end }}

{{/* A folder has to be on a volume: containers are read-only. Arguments: root, value, folder or address. */}}
{{- define "bundlekeel.checkFolder" -}}
{{- $ := index . 0 -}}
{{- $uri := trimPrefix "file://" (index . 2) -}}
{{- if and $uri (not (contains "://" $uri)) -}}
{{- $mounts := list -}}
{{- if include "bundlekeel.historyClaim" $ -}}{{- $mounts = append $mounts "/history" -}}{{- end -}}
{{- range $.Values.extraVolumeMounts -}}{{- $mounts = append $mounts .mountPath -}}{{- end -}}
{{- $found := false -}}
{{- range $mounts -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .)) (printf "%s/" $uri) -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "%s: the folder %s is on no volume, and containers are read-only: set history.existingClaim, which is mounted at /history, or extraVolumes and extraVolumeMounts" (index . 1) $uri) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "bundlekeel.checkHistory" -}}
{{- if and (or .Values.history.existingClaim .Values.history.uri) (not (include "bundlekeel.history" .)) -}}
{{- fail "history.enabled is false, so nothing is recorded: set it to true, or leave history.uri and history.existingClaim empty" -}}
{{- end -}}
{{- include "bundlekeel.checkFolder" (list . "history.uri" (include "bundlekeel.historyUri" .)) -}}
{{- if .Values.recalibrate.enabled -}}
{{- include "bundlekeel.checkFolder" (list . "recalibrate.out" .Values.recalibrate.out) -}}
{{- end -}}
{{- end }}

{{/* What keeps broker pods from a start, and the server does not see before. The lookup finds nothing without a cluster. */}}
{{- define "bundlekeel.checkSidecar" -}}
{{- $v := .Values -}}
{{- if $v.sidecar.enabled -}}
{{- if and (eq $v.image.repository "bundlekeel") (eq (include "bundlekeel.join" .) "policy") -}}
{{- fail "image.repository names no registry, and broker pods would wait for the image: push it to your registry, and set REGISTRY/bundlekeel" -}}
{{- end -}}
{{- if and (include "bundlekeel.history" .) (not $v.history.uri) (not $v.history.existingClaim) -}}
{{- fail "history: broker pods would wait for a claim that this release makes: set history.uri to an object store, or history.existingClaim to a claim that is bound" -}}
{{- end -}}
{{- range $v.extraVolumes -}}
{{- range $type := keys (omit . "name") -}}
{{- if not (has $type (list "configMap" "csi" "downwardAPI" "emptyDir" "persistentVolumeClaim" "projected" "secret")) -}}
{{- fail (printf "extraVolumes: with sidecar.enabled a volume of type %s is not supported, which could keep broker pods from a start" $type) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq (include "bundlekeel.join" .) "policy") (lookup "v1" "Namespace" "" .Release.Namespace) -}}
{{- range $value, $name := dict "pulsar.jwt.existingSecret" $v.pulsar.jwt.existingSecret "pulsar.tls.caSecret" $v.pulsar.tls.caSecret
  "pulsar.tls.certSecret" $v.pulsar.tls.certSecret "pulsar.sasl.existingSecret" $v.pulsar.sasl.existingSecret
  "api.auth.existingSecret" $v.api.auth.existingSecret "api.tls.existingSecret" $v.api.tls.existingSecret -}}
{{- if and $name (not (lookup "v1" "Secret" $.Release.Namespace $name)) -}}
{{- fail (printf "%s: there is no Secret %s in namespace %s, which the sidecars need: create it first" $value $name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- range $volume := include "bundlekeel.brokerVolumes" (merge (dict "journals" true) .) | fromYamlArray -}}
{{- $value := get (dict "bundlekeel-history" "history.existingClaim" "bundlekeel-journal" "journal.existingClaim") .name | default "extraVolumes" -}}
{{- with .persistentVolumeClaim -}}
{{- $claim := lookup "v1" "PersistentVolumeClaim" $.Release.Namespace .claimName -}}
{{- if ne (dig "status" "phase" "" $claim) "Bound" -}}
{{- fail (printf "%s: there is no bound PersistentVolumeClaim %s in namespace %s, and broker pods would wait for it: create and bind it first. A storage class with volumeBindingMode WaitForFirstConsumer binds it to the first pod that mounts it: run one that is not a broker" $value .claimName $.Release.Namespace) -}}
{{- end -}}
{{- $written := ne $value "extraVolumes" -}}
{{- range $v.extraVolumeMounts -}}
{{- if and (eq .name $volume.name) (not .readOnly) -}}{{- $written = true -}}{{- end -}}
{{- end -}}
{{- $modes := $claim.spec.accessModes -}}
{{- if not (or (has "ReadWriteMany" $modes) (and (has "ReadOnlyMany" $modes) (or .readOnly (not $written)))) -}}
{{- fail (printf "%s: claim %s is %s, so broker pods on other nodes would wait for it: name a ReadWriteMany claim" $value .claimName (join " " $modes)) -}}
{{- end -}}
{{- end -}}
{{- with dig "csi" "driver" "" . -}}
{{- if not (lookup "storage.k8s.io/v1" "CSIDriver" "" .) -}}
{{- fail (printf "extraVolumes: there is no CSIDriver %s, and broker pods would wait for it: install it first" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Of a duration like 10s, 500ms or 1m, or a number. */}}
{{- define "bundlekeel.seconds" -}}
{{- $text := toString . -}}
{{- if regexMatch "^[0-9.]+$" $text -}}{{- $text = printf "%ss" $text -}}{{- end -}}
{{- $zero := toDate "2006-01-02" "2000-01-01" -}}
{{- sub (unixEpoch (dateModify $text $zero)) (unixEpoch $zero) -}}
{{- end }}

{{- define "bundlekeel.checkJobs" -}}
{{- $interval := dig "cycle" "interval" "10s" .Values.settings -}}
{{- if lt (int (include "bundlekeel.seconds" .Values.deadman.after)) (mul 3 (int (include "bundlekeel.seconds" $interval))) -}}
{{- fail (printf "deadman.after: %s is shorter than three cycles of %v (settings.cycle.interval): a leader that is a little slow is not dead" .Values.deadman.after $interval) -}}
{{- end -}}
{{- with .Values.monitoring -}}
{{- if and .podMonitor.enabled .serviceMonitor.enabled -}}
{{- fail "monitoring: podMonitor and serviceMonitor would scrape the same pods twice: enable one of them" -}}
{{- end -}}
{{- if and .serviceMonitor.enabled (not (include "bundlekeel.deployment" $)) -}}
{{- fail "monitoring.serviceMonitor scrapes the Deployment, and deployment.enabled is false: enable monitoring.podMonitor instead" -}}
{{- end -}}
{{- range $key, $names := dict "leaveOut" .prometheusRule.leaveOut "changes" (keys .prometheusRule.changes) -}}
{{- range $names -}}
{{- if not (regexMatch (printf "(?m)alert: %s$" .) ($.Files.Get "files/alerts.yml")) -}}
{{- fail (printf "monitoring.prometheusRule.%s: there is no alert %s in deploy/prometheus/alerts.yml" $key .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "bundlekeel.checkNetwork" -}}
{{- with .Values.service -}}
{{- if and (or .loadBalancerClass .loadBalancerSourceRanges) (ne .type "LoadBalancer") -}}
{{- fail (printf "service.loadBalancerClass and service.loadBalancerSourceRanges hold for no Service of type %s: set service.type to LoadBalancer" .type) -}}
{{- end -}}
{{- end -}}
{{- if .Values.ingress.enabled -}}
{{- if not .Values.ingress.hosts -}}
{{- fail "ingress.hosts is empty: name the host by which browsers reach the page, [bundlekeel.example.com]" -}}
{{- end -}}
{{- if not (or (include "bundlekeel.deployment" .) .Values.sidecar.enabled) -}}
{{- fail "ingress.enabled: there is no Service without deployment.enabled or sidecar.enabled: turn it off" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.apiFrom) -}}
{{- fail "networkPolicy.apiFrom is empty, so an ingress controller of another namespace is kept out: add its pods, [{namespaceSelector: {}, podSelector: {matchLabels: {app.kubernetes.io/name: ingress-nginx}}}]" -}}
{{- end -}}
{{- end -}}
{{- if .Values.networkPolicy.enabled -}}
{{- with .Values.monitoring -}}
{{- if and (or .podMonitor.enabled .serviceMonitor.enabled) (include "bundlekeel.deployment" $) (not $.Values.networkPolicy.metricsFrom) -}}
{{- fail "networkPolicy.metricsFrom is empty, so a Prometheus of another namespace is kept out: add its namespace, [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]; for one of this namespace [{podSelector: {}}]" -}}
{{- end -}}
{{- end -}}
{{- range $value := list "metadataStore" "configurationStore" -}}
{{- range regexFindAll "[^,:/]+(:[0-9]+)?(,|$)" (regexReplaceAll "/.*" (trimPrefix "zk:" (index $.Values.pulsar $value)) "") -1 -}}
{{- $port := default "2181" (regexFind "[0-9]+$" (regexFind ":[0-9]+" .)) -}}
{{- if not (has $port (splitList " " (join " " $.Values.networkPolicy.zookeeperPorts))) -}}
{{- fail (printf "networkPolicy.zookeeperPorts: port %s of pulsar.%s is missing, so the metadata store would be cut off: add it" $port $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not .Values.networkPolicy.extraEgress -}}
{{- $out := dict
  "history.uri" (and (contains "://" .Values.history.uri) (not (hasPrefix "file://" .Values.history.uri)))
  "settings.prometheus.url" (dig "prometheus" "url" "" .Values.settings)
  "settings.traces.otlp_endpoint" (dig "traces" "otlp_endpoint" "" .Values.settings)
  "settings.notify.webhooks" (dig "notify" "webhooks" list .Values.settings)
-}}
{{- range $value, $found := $out -}}
{{- if $found -}}
{{- fail (printf "networkPolicy.extraEgress is empty, so what %s names cannot be reached: add a rule for it" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
