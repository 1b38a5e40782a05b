{{/* One of our containers in a pod that ends. Arguments: root, name, arguments, resources, what
     makes its mounts. */}}
{{- define "bundlekeel.jobContainer" -}}
{{- $ := index . 0 -}}
name: {{ index . 1 }}
image: {{ include "bundlekeel.image" (list $ $.Values.image) }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
args:
  {{- toYaml (index . 2) | nindent 2 }}
{{ include "bundlekeel.env" $ }}
resources:
  {{- toYaml (index . 3) | nindent 2 }}
securityContext:
  {{- include "bundlekeel.securityContext" $ | nindent 2 }}
volumeMounts:
  {{- include (index . 4) $ | nindent 2 }}
{{- end }}
