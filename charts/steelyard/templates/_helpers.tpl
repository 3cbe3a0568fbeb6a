{{- /* Name of everything of this release: the release's name, which says steelyard. */ -}}
{{- define "steelyard.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-steelyard" .Release.Name) (contains "steelyard" .Release.Name) -}}
{{- printf "%s-operator" ($name | trunc 54 | trimSuffix "-") -}}
{{- end }}

{{- /* Labels that select the operator's pods; they never change. */ -}}
{{- define "steelyard.selector" -}}
app.kubernetes.io/name: steelyard
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "steelyard.labels" -}}
{{ include "steelyard.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* A whole image reference: registry/repository:tag@digest. Takes (list $ image). */ -}}
{{- define "steelyard.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.registry }}{{ . }}/{{ end -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end }}
