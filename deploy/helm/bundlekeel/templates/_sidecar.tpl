{{/* The container in the broker pods, as an init container that keeps running. No startup probe, because it delays the
     broker's own container until it passes, and no readiness probe, because it takes the broker out of its Service. The
     liveness probe restarts this container alone. Both ways to join use this definition. */}}
{{- define "bundlekeel.sidecarContainer" -}}
name: bundlekeel
image: {{ include "bundlekeel.image" (list . .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
restartPolicy: Always
args:
  {{- include "bundlekeel.runArgs" . | nindent 2 }}
{{ include "bundlekeel.optional" (include "bundlekeel.env" (merge (dict "inBrokerPod" true) .) | fromYaml) }}
ports:
  - {name: bundlekeel, containerPort: {{ int .Values.api.port }}, protocol: TCP}
livenessProbe:
  {{- include "bundlekeel.probe" (list "/livez" .Values.livenessProbe) | nindent 2 }}
resources:
  {{- toYaml .Values.sidecar.resources | nindent 2 }}
securityContext:
  {{- include "bundlekeel.securityContext" . | nindent 2 }}
  runAsUser: {{ int .Values.sidecar.runAsUser }}
  # The group of the Pulsar image's user: mounted secrets belong to it.
  runAsGroup: 0
volumeMounts:
  {{- include "bundlekeel.volumeMounts" . | nindent 2 }}
{{- end }}

{{/* A part of a broker pod as YAML, with every reference to a Secret or ConfigMap optional. A missing object or key must not
     keep the broker from starting: without it the sidecar stops with a clear error. */}}
{{- define "bundlekeel.optional" -}}
{{- include "bundlekeel.setOptional" . -}}
{{- toYaml . -}}
{{- end }}

{{- define "bundlekeel.setOptional" -}}
{{- if kindIs "slice" . -}}
{{- range . }}{{ include "bundlekeel.setOptional" . }}{{ end -}}
{{- else if kindIs "map" . -}}
{{- range $key, $item := . -}}
{{- include "bundlekeel.setOptional" $item -}}
{{- if and (kindIs "map" $item) (has $key (list "secret" "configMap" "clusterTrustBundle" "secretKeyRef" "configMapKeyRef" "fileKeyRef" "secretRef" "configMapRef")) -}}
{{- $_ := set $item "optional" true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The volumes that the sidecar and the hook add to a broker pod. */}}
{{- define "bundlekeel.brokerVolumes" -}}
{{ include "bundlekeel.optional" (include "bundlekeel.volumes" . | fromYamlArray) }}
{{- if .Values.sidecar.drain.enabled }}
- name: bundlekeel-hook
  configMap:
    name: {{ include "bundlekeel.fullname" . }}-sidecar
    optional: true
    items: [{key: broker_hook.py, path: broker_hook.py}]
{{- if or .Values.api.auth.existingSecret .Values.api.tls.existingSecret }}
- name: bundlekeel-hook-auth
  projected:
    defaultMode: 0440
    sources:
      {{- with .Values.api.auth.existingSecret }}
      - secret: {name: {{ . | quote }}, items: [{key: operator, path: operator}], optional: true}
      {{- end }}
      {{- with .Values.api.tls.existingSecret }}
      - secret: {name: {{ . | quote }}, items: [{key: ca.crt, path: ca.crt}], optional: true}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the hook needs in the broker's own container. */}}
{{- define "bundlekeel.hookMounts" -}}
- {name: bundlekeel-run, mountPath: /run/bundlekeel}
- {name: bundlekeel-hook, mountPath: /opt/bundlekeel-hook, readOnly: true}
{{- if or .Values.api.auth.existingSecret .Values.api.tls.existingSecret }}
- {name: bundlekeel-hook-auth, mountPath: /opt/bundlekeel-auth, readOnly: true}
{{- end }}
{{- end }}

{{/* A shell command of the broker's container. Arguments: root, `drain` or `back`, further environment. */}}
{{- define "bundlekeel.hook" -}}
{{- $ := index . 0 -}}
{{- with $.Values.sidecar.drain -}}
BUNDLEKEEL_WITHIN={{ int .withinSeconds }} BUNDLEKEEL_WARM={{ .warm }} BUNDLEKEEL_BROKER_PORT={{ int .brokerPort }}
{{- end }}
{{- if $.Values.api.auth.existingSecret }} BUNDLEKEEL_TOKEN_FILE=/opt/bundlekeel-auth/operator{{ end }}
{{- if $.Values.api.tls.existingSecret }} BUNDLEKEEL_TLS_CA=/opt/bundlekeel-auth/ca.crt{{ end }}
{{- index . 2 }} python3 /opt/bundlekeel-hook/broker_hook.py {{ index . 1 }}
{{- end }}

{{- define "bundlekeel.gracePeriod" -}}
{{- add (int .Values.sidecar.drain.withinSeconds) 60 -}}
{{- end }}

{{/* The hooks of the broker's container. The output of a hook is in no log, so it is written to the log of the broker's own
     process. A broker does not start before its postStart ends, so `back` runs in the background. */}}
{{- define "bundlekeel.lifecycle" -}}
preStop:
  exec:
    command: [sh, -c, {{ include "bundlekeel.hook" (list . "drain" " BUNDLEKEEL_LOG=/proc/1/fd/2 exec") | quote }}]
postStart:
  exec:
    command: [sh, -c, {{ include "bundlekeel.hook" (list . "back" " BUNDLEKEEL_LOG=/proc/1/fd/2") | printf "%s >/dev/null 2>&1 </dev/null &" | quote }}]
{{- end }}

{{/* Values for the Apache Pulsar chart, where the cluster does not serve a policy. */}}
{{- define "bundlekeel.brokerValues" -}}
{{- $run := merge (dict "journals" true) . -}}
# For the Apache Pulsar chart: helm upgrade … -f this-file. Lists, and broker.additionalCommand, replace those of your own values: join them
# by hand.
broker:
  {{- if .Values.sidecar.drain.enabled }}
  gracePeriod: {{ include "bundlekeel.gracePeriod" . }}
  additionalCommand: {{ printf "%s &" (include "bundlekeel.hook" (list . "back" "")) | quote }}
  {{- end }}
  initContainers:
    - {{- include "bundlekeel.sidecarContainer" $run | nindent 6 }}
  extraVolumes:
    {{- include "bundlekeel.brokerVolumes" $run | nindent 4 }}
  {{- if .Values.sidecar.drain.enabled }}
  extraVolumeMounts:
    {{- include "bundlekeel.hookMounts" . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The chart has no value for a preStop hook either: a patch for a post-renderer. */}}
{{- define "bundlekeel.kustomization" -}}
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [all.yaml]
patches:
  - target: {kind: StatefulSet, labelSelector: component={{ default "broker" .Values.sidecar.brokerLabels.component }}}
    patch: |-
      - op: add
        path: /spec/template/spec/containers/0/lifecycle
        value:
          {{- pick (include "bundlekeel.lifecycle" . | fromYaml) "preStop" | toYaml | nindent 10 }}
{{- end }}
