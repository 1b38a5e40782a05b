{{/* The container for the Apache chart's broker.initContainers. No startup probe, which would hold the broker's own
     container back until it passes, and no readiness probe, which would take the broker out of its Service (as long as
     this container runs: while it waits to be restarted, its pod is not ready). The liveness probe restarts this
     container alone. */}}
{{- define "bundlekeel.sidecarContainer" -}}
name: bundlekeel
image: {{ include "bundlekeel.image" (list . .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
restartPolicy: Always
args:
  {{- include "bundlekeel.runArgs" . | nindent 2 }}
{{ include "bundlekeel.env" . }}
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

{{- define "bundlekeel.hookEnv" -}}
BUNDLEKEEL_WITHIN={{ int .Values.sidecar.drain.withinSeconds }} BUNDLEKEEL_WARM={{ .Values.sidecar.drain.warm }} BUNDLEKEEL_BROKER_PORT={{ int .Values.sidecar.drain.brokerPort }}
{{- if .Values.api.auth.existingSecret }} BUNDLEKEEL_TOKEN_FILE=/opt/bundlekeel-auth/operator{{ end }}
{{- if .Values.api.tls.existingSecret }} BUNDLEKEEL_TLS_CA=/opt/bundlekeel-auth/ca.crt{{ end }}
{{- end }}

{{/* Values for the Apache Pulsar chart, which has no other hook for a container of ours (4.7.0). */}}
{{- define "bundlekeel.brokerValues" -}}
{{- $run := merge (dict "journals" true) . -}}
# For the Apache Pulsar chart: helm upgrade … -f this-file. Lists, and broker.additionalCommand, replace those of your own values: join them
# by hand.
broker:
  {{- if .Values.sidecar.drain.enabled }}
  gracePeriod: {{ add (int .Values.sidecar.drain.withinSeconds) 60 }}
  additionalCommand: {{ printf "%s python3 /opt/bundlekeel-hook/broker_hook.py back &" (include "bundlekeel.hookEnv" .) | quote }}
  {{- end }}
  initContainers:
    - {{- include "bundlekeel.sidecarContainer" $run | nindent 6 }}
  extraVolumes:
    {{- include "bundlekeel.volumes" $run | nindent 4 }}
    {{- if .Values.sidecar.drain.enabled }}
    - name: bundlekeel-hook
      configMap:
        name: {{ include "bundlekeel.fullname" . }}-sidecar
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
          - secret: {name: {{ . | quote }}, items: [{key: ca.crt, path: ca.crt}]}
          {{- end }}
    {{- end }}
  extraVolumeMounts:
    - {name: bundlekeel-run, mountPath: /run/bundlekeel}
    - {name: bundlekeel-hook, mountPath: /opt/bundlekeel-hook, readOnly: true}
    {{- if or .Values.api.auth.existingSecret .Values.api.tls.existingSecret }}
    - {name: bundlekeel-hook-auth, mountPath: /opt/bundlekeel-auth, readOnly: true}
    {{- end }}
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
          preStop:
            exec:
              command: [sh, -c, "{{ include "bundlekeel.hookEnv" . }} BUNDLEKEEL_LOG=/proc/1/fd/2 exec python3 /opt/bundlekeel-hook/broker_hook.py drain"]
{{- end }}
