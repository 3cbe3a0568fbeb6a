{{- define "steelyard-demo.role" -}}
replicas:
  min: {{ .min }}
  max: {{ .max }}
resources:
  requests:
    {{- toYaml .requests | nindent 4 }}
  limits:
    {{- toYaml .limits | nindent 4 }}
{{- end }}
