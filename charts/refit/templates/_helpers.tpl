{{- define "refit.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The areas that are off, by name, as the controller's flag has them. */}}
{{- define "refit.without" -}}
{{- $out := list -}}
{{- if not .Values.areas.bootImages }}{{ $out = append $out "boot-images" }}{{ end -}}
{{- if not .Values.areas.clusterAPI }}{{ $out = append $out "cluster-api" }}{{ end -}}
{{- if not .Values.areas.imageTags }}{{ $out = append $out "image-tags" }}{{ end -}}
{{- if not .Values.areas.osImages }}{{ $out = append $out "os-images" }}{{ end -}}
{{- join "," $out -}}
{{- end -}}
