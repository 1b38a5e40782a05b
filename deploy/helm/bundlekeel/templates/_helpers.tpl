{{/* Names and labels. */}}
{{- define "bundlekeel.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "bundlekeel.matchLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "bundlekeel.labels" -}}
{{ include "bundlekeel.matchLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Arguments: root, further labels, which win: a key twice is no YAML. */}}
{{- define "bundlekeel.labelsWith" -}}
{{- toYaml (merge (deepCopy (index . 1)) (fromYaml (include "bundlekeel.labels" (index . 0)))) -}}
{{- end }}

{{- define "bundlekeel.serviceAccount" -}}
{{- default (ternary (include "bundlekeel.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{/* The account of Spark's driver, which may create pods; sidecars have another one. */}}
{{- define "bundlekeel.driverAccount" -}}
{{- default (printf "%s-recalibrate" (include "bundlekeel.fullname" .)) .Values.recalibrate.spark.account -}}
{{- end }}

{{/* Arguments: root, the image's values. */}}
{{- define "bundlekeel.image" -}}
{{- $ := index . 0 -}}
{{- with index . 1 -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "bundlekeel.sparkOnKubernetes" -}}
{{- if and .Values.recalibrate.enabled (hasPrefix "k8s://" .Values.recalibrate.spark.master) -}}true{{- end -}}
{{- end }}

{{/* Whether history is recorded: the recalibration needs it. Empty: no. */}}
{{- define "bundlekeel.history" -}}
{{- if or .Values.history.enabled .Values.recalibrate.enabled -}}true{{- end -}}
{{- end }}

{{/* Store of the history; empty: nothing is recorded. */}}
{{- define "bundlekeel.historyUri" -}}
{{- if include "bundlekeel.history" . -}}{{- default "/history" .Values.history.uri -}}{{- end -}}
{{- end }}

{{/* The claim that is mounted at /history; empty: none. */}}
{{- define "bundlekeel.historyClaim" -}}
{{- if and (include "bundlekeel.history" .) (or .Values.history.existingClaim (not .Values.history.uri)) -}}
{{- default (printf "%s-history" (include "bundlekeel.fullname" .)) .Values.history.existingClaim -}}
{{- end -}}
{{- end }}

{{- define "bundlekeel.calibrationUri" -}}
{{- default (printf "%s/calibration" (trimSuffix "/" (include "bundlekeel.historyUri" .))) .Values.recalibrate.out -}}
{{- end }}

{{- define "bundlekeel.deployment" -}}
{{- $enabled := toString .Values.deployment.enabled -}}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (not .Values.sidecar.enabled)) -}}true{{- end -}}
{{- end }}

{{/* The newest version of MutatingAdmissionPolicy that the cluster serves; empty: none. */}}
{{- define "bundlekeel.policyVersion" -}}
{{- $newest := "" -}}
{{- range $version := list "v1beta1" "v1" -}}
{{- if $.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/%s/MutatingAdmissionPolicy" $version) -}}{{- $newest = $version -}}{{- end -}}
{{- end -}}
{{- $newest -}}
{{- end }}

{{/* How the sidecar gets into broker pods: policy or values; empty: there is none. */}}
{{- define "bundlekeel.join" -}}
{{- if and .Values.sidecar.enabled (eq .Values.sidecar.join "auto") -}}
{{- ternary "policy" "values" (ne (include "bundlekeel.policyVersion" .) "") -}}
{{- else if .Values.sidecar.enabled -}}
{{- .Values.sidecar.join -}}
{{- end -}}
{{- end }}

{{- define "bundlekeel.scheme" -}}
{{- ternary "https" "http" (ne .Values.api.tls.existingSecret "") -}}
{{- end }}

{{/* The settings file: what the chart knows, and over it what `settings` says; hosts of the API are those of both. */}}
{{- define "bundlekeel.settings" -}}
{{- $v := .Values -}}
{{- $name := include "bundlekeel.fullname" . -}}
{{- $host := printf "%s.%s.svc" $name .Release.Namespace -}}
{{- $made := dict
  "cluster" $v.pulsar.cluster
  "mode" $v.mode
  "metadata_store" $v.pulsar.metadataStore
  "leadership" (dict "seats" 3)
  "journal" (dict "path" "/var/lib/bundlekeel/journal.jsonl")
  "logging" (dict "format" "json")
-}}
{{- if $v.pulsar.configurationStore -}}
{{- $_ := set $made "configuration_store" $v.pulsar.configurationStore -}}
{{- end -}}
{{- $api := dict "host" "0.0.0.0" "port" (int $v.api.port) "socket" "/run/bundlekeel/bundlekeel.sock" "allowed_hosts" (list $name (printf "%s.%s" $name .Release.Namespace) $host (printf "%s.cluster.local" $host)) -}}
{{- range ternary $v.ingress.hosts list $v.ingress.enabled -}}
{{- $_ := set $api "allowed_hosts" (append $api.allowed_hosts (trimPrefix "*" .)) -}}
{{- end -}}
{{- if $v.api.auth.existingSecret -}}
{{- $_ := set $api "auth" (dict "tokens_file" "/run/secrets/bundlekeel/auth/tokens" "peer_token_file" "/run/secrets/bundlekeel/auth/peer") -}}
{{- end -}}
{{- if $v.api.tls.existingSecret -}}
{{- $tls := dict "cert_file" "/run/secrets/bundlekeel/api-tls/tls.crt" "key_file" "/run/secrets/bundlekeel/api-tls/tls.key" "trust_certs_file" "/run/secrets/bundlekeel/api-tls/ca.crt" -}}
{{- if $v.api.tls.requireClientCertificate -}}
{{- $_ := set $tls "client_ca_file" "/run/secrets/bundlekeel/api-tls/ca.crt" -}}
{{- end -}}
{{- $_ := set $api "tls" $tls -}}
{{- end -}}
{{- $_ := set $made "api" $api -}}
{{- $admin := dict -}}
{{- $store := dict -}}
{{- with $v.pulsar.tls -}}
{{- if .brokers -}}
{{- $_ := set $admin "prefer_tls" true -}}
{{- if .caSecret -}}{{- $_ := set $admin "tls_trust_certs_file" "/run/secrets/bundlekeel/ca/ca.crt" -}}{{- end -}}
{{- if .certSecret -}}
{{- $_ := set $admin "tls_cert_file" "/run/secrets/bundlekeel/cert/tls.crt" -}}
{{- $_ := set $admin "tls_key_file" "/run/secrets/bundlekeel/cert/tls.key" -}}
{{- end -}}
{{- end -}}
{{- if .zookeeper -}}
{{- $_ := set $store "tls" true -}}
{{- if .caSecret -}}{{- $_ := set $store "tls_trust_certs_file" "/run/secrets/bundlekeel/ca/ca.crt" -}}{{- end -}}
{{- if .certSecret -}}
{{- $_ := set $store "tls_cert_file" "/run/secrets/bundlekeel/cert/tls.crt" -}}
{{- $_ := set $store "tls_key_file" "/run/secrets/bundlekeel/cert/tls.key" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.pulsar.jwt.existingSecret -}}{{- $_ := set $admin "token_file" "/run/secrets/bundlekeel/token/token" -}}{{- end -}}
{{- if $admin -}}{{- $_ := set $made "admin" $admin -}}{{- end -}}
{{- if $store -}}{{- $_ := set $made "store" $store -}}{{- end -}}
{{- with include "bundlekeel.historyUri" . -}}
{{- $_ := set $made "history" (dict "uri" . "wal" "/var/lib/bundlekeel/history") -}}
{{- end -}}
{{- if and $v.recalibrate.enabled (ne $v.recalibrate.use "off") -}}
{{- $_ := set $made "calibration" (dict "mode" $v.recalibrate.use "uri" (include "bundlekeel.calibrationUri" .)) -}}
{{- end -}}
{{- if $v.kubernetesEvents.enabled -}}{{- $_ := set $made "notify" (dict "kubernetes" "auto") -}}{{- end -}}
{{- /* A list that is merged takes the place of the other. */ -}}
{{- $hosts := uniq (concat $api.allowed_hosts (dig "api" "allowed_hosts" list $v.settings)) -}}
{{- $all := mergeOverwrite $made (deepCopy $v.settings) -}}
{{- $_ := set $all.api "allowed_hosts" $hosts -}}
{{- toYaml $all -}}
{{- end }}

{{/* Without the keys that running sidecars read again (docs/reference/settings.md). */}}
{{- define "bundlekeel.restartSettings" -}}
{{- omit (fromYaml (include "bundlekeel.settings" .)) "strategy" "placement" "compat" "parameters" | toYaml -}}
{{- end }}

{{/* Nothing of ours runs as root, writes to its image, or has a capability. */}}
{{- define "bundlekeel.securityContext" -}}
runAsNonRoot: true
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
privileged: false
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What every container of ours has besides its settings file. With `journals`, which whoever runs sidecars for good adds to
     the root, the journal outlives its pod; no job has that: the failsafe must run while the claim's storage does not. With
     `withoutStore` there is no password of ZooKeeper. */}}
{{- define "bundlekeel.env" -}}
env:
  - name: POD_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: BUNDLEKEEL__API__ADVERTISED_URL
    value: {{ printf "%s://%s:%d" (include "bundlekeel.scheme" .) .Values.api.advertisedHost (int .Values.api.port) | quote }}
  {{- if and .Values.pulsar.sasl.existingSecret (not .withoutStore) }}
  - name: BUNDLEKEEL_SECRETS_DIR
    value: /run/secrets/bundlekeel/secrets
  {{- end }}
  {{- if and .journals .Values.journal.existingClaim }}
  - name: BUNDLEKEEL__JOURNAL__PATH
    value: /journal/$(POD_NAME).jsonl
  {{- end }}
  {{- if .inBrokerPod }}
  # The containers of a pod share its network interfaces, so their traffic is the broker's.
  - name: BUNDLEKEEL__COUNTERS__NETWORK_FILE
    value: /proc/net/dev
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Mounts and volumes, the same wherever a container of ours runs. The settings are a folder: a file mounted with subPath
     stays as it was at the pod's start. Nothing can be mounted into a folder that is read-only. */}}
{{- define "bundlekeel.volumeMounts" -}}
{{ include "bundlekeel.clusterMounts" . }}
- {name: bundlekeel-run, mountPath: /run/bundlekeel}
- {name: bundlekeel-data, mountPath: /var/lib/bundlekeel}
{{- if .Values.api.auth.existingSecret }}
- {name: bundlekeel-auth, mountPath: /run/secrets/bundlekeel/auth, readOnly: true}
{{- end }}
{{- if .Values.api.tls.existingSecret }}
- {name: bundlekeel-api-tls, mountPath: /run/secrets/bundlekeel/api-tls, readOnly: true}
{{- end }}
{{- if include "bundlekeel.historyClaim" . }}
- {name: bundlekeel-history, mountPath: /history}
{{- end }}
{{- if and .journals .Values.journal.existingClaim }}
- {name: bundlekeel-journal, mountPath: /journal}
{{- end }}
{{- end }}

{{/* The part of them that a command needs which asks the brokers and ZooKeeper, and no sidecar. */}}
{{- define "bundlekeel.clusterMounts" -}}
- {name: bundlekeel-settings, mountPath: /etc/bundlekeel, readOnly: true}
- {name: bundlekeel-tmp, mountPath: /tmp}
{{- if .Values.pulsar.jwt.existingSecret }}
- {name: bundlekeel-token, mountPath: /run/secrets/bundlekeel/token, readOnly: true}
{{- end }}
{{- if .Values.pulsar.tls.caSecret }}
- {name: bundlekeel-ca, mountPath: /run/secrets/bundlekeel/ca, readOnly: true}
{{- end }}
{{- if .Values.pulsar.tls.certSecret }}
- {name: bundlekeel-cert, mountPath: /run/secrets/bundlekeel/cert, readOnly: true}
{{- end }}
{{- if .Values.pulsar.sasl.existingSecret }}
- {name: bundlekeel-secrets, mountPath: /run/secrets/bundlekeel/secrets, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "bundlekeel.volumes" -}}
{{ include "bundlekeel.clusterVolumes" . }}
- name: bundlekeel-run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: bundlekeel-data
  emptyDir: {sizeLimit: {{ ternary .Values.history.walSize "512Mi" (ne (include "bundlekeel.history" .) "") }}}
{{- with .Values.api.auth.existingSecret }}
- name: bundlekeel-auth
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
    items: [{key: tokens, path: tokens}, {key: peer, path: peer}]
{{- end }}
{{- with .Values.api.tls.existingSecret }}
- name: bundlekeel-api-tls
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- with include "bundlekeel.historyClaim" . }}
- name: bundlekeel-history
  persistentVolumeClaim:
    claimName: {{ . | quote }}
{{- end }}
{{- if and .journals .Values.journal.existingClaim }}
- name: bundlekeel-journal
  persistentVolumeClaim:
    claimName: {{ .Values.journal.existingClaim | quote }}
{{- end }}
{{- end }}

{{- define "bundlekeel.clusterVolumes" -}}
- name: bundlekeel-settings
  configMap:
    name: {{ include "bundlekeel.fullname" . }}
- name: bundlekeel-tmp
  emptyDir: {sizeLimit: 64Mi}
{{- with .Values.pulsar.jwt }}{{ if .existingSecret }}
- name: bundlekeel-token
  secret:
    secretName: {{ .existingSecret | quote }}
    defaultMode: 0440
    items: [{key: {{ .key | quote }}, path: token}]
{{- end }}{{ end }}
{{- with .Values.pulsar.tls }}{{ if .caSecret }}
- name: bundlekeel-ca
  secret:
    secretName: {{ .caSecret | quote }}
    items: [{key: {{ .caKey | quote }}, path: ca.crt}]
{{- end }}{{ end }}
{{- with .Values.pulsar.tls }}{{ if .certSecret }}
- name: bundlekeel-cert
  secret:
    secretName: {{ .certSecret | quote }}
    defaultMode: 0440
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
{{- end }}{{ end }}
{{- with .Values.pulsar.sasl }}{{ if .existingSecret }}
- name: bundlekeel-secrets
  secret:
    secretName: {{ .existingSecret | quote }}
    defaultMode: 0440
    items: [{key: {{ .key | quote }}, path: store__sasl_password}]
{{- end }}{{ end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Through the unix socket: requests to the port cannot keep kubelet from being answered. Arguments: path, times. */}}
{{- define "bundlekeel.probe" -}}
exec:
  command: [python, /opt/bundlekeel/healthcheck.py, {{ index . 0 }}]
{{ toYaml (index . 1) }}
{{- end }}

{{- define "bundlekeel.runArgs" -}}
{{- toYaml (concat (list "run" "-c" "/etc/bundlekeel/settings.yaml") .Values.extraArgs) -}}
{{- end }}

{{/* The metadata of every pod. Arguments: root, component, annotations of this one. */}}
{{- define "bundlekeel.podMetadata" -}}
{{- $ := index . 0 -}}
labels:
  {{- include "bundlekeel.labelsWith" (list $ $.Values.podLabels) | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
{{- with merge (dict) (index . 2) $.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The spec of every pod but for its containers. Arguments: root, affinity of this one; values that hold for it instead of
     the common ones, if it may have some. Only the token of who must speak to the API server is mounted. */}}
{{- define "bundlekeel.podCommon" -}}
{{- $ := index . 0 -}}
{{- $own := dict -}}
{{- if eq (len .) 3 }}{{ $own = index . 2 }}{{ end -}}
serviceAccountName: {{ default (include "bundlekeel.serviceAccount" $) $own.account }}
enableServiceLinks: false
securityContext:
  {{- toYaml $.Values.podSecurityContext | nindent 2 }}
{{- with merge (deepCopy (default $.Values.affinity $own.affinity)) (index . 1) }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "priorityClassName" "hostAliases" "dnsConfig" }}
{{- with default (index $.Values $key) (index $own $key) }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
