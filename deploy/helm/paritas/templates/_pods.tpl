{{/* Parts of pods.  Calls of this file take (dict "root" $ "component" NAME "values" VALUES "contract" NAME?). */}}

{{- define "paritas.componentName" -}}
{{- $parts := list (include "paritas.fullname" .root) -}}
{{- if eq .component "detectors" -}}
{{- $parts = concat $parts (list "detect" .contract) -}}
{{- else -}}
{{- $parts = append $parts .component -}}
{{- end -}}
{{- join "-" $parts -}}
{{- end -}}

{{- define "paritas.serviceAccountName" -}}
{{- if .values.serviceAccount.create -}}
{{- .values.serviceAccount.name | default (printf "%s-%s" (include "paritas.fullname" .root) .component) -}}
{{- else -}}
{{- .values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* Metadata of a pod, without the chart's version: that alone restarts nothing.  "checksums" maps names to text that cannot be reloaded. */}}
{{- define "paritas.podMetadata" -}}
labels:
  {{- include "paritas.selectorLabels" . | nindent 2 }}
  {{- $given := merge (deepCopy (.values.podLabels | default dict)) (.root.Values.commonLabels | default dict) }}
  {{- include "paritas.describingLabels" (dict "root" .root "given" $given) | trim | nindent 2 }}
{{- if or .checksums .values.podAnnotations }}
annotations:
  {{- range $name, $text := .checksums }}
  checksum/{{ $name }}: {{ $text | sha256sum }}
  {{- end }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* What every pod has.  "withToken": whether it talks to the API server. */}}
{{- define "paritas.podBasics" -}}
serviceAccountName: {{ include "paritas.serviceAccountName" . | quote }}
automountServiceAccountToken: {{ .withToken | default false }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ int64 .values.terminationGracePeriodSeconds }}
securityContext:
  {{- include "paritas.podSecurityContext" . | nindent 2 }}
{{- with include "paritas.scheduling" . | trim }}
{{ . }}
{{- end }}
{{- end -}}

{{/* What a pod's own `extraEnv` names is not named twice: an upgrade that merges lists by name would lose one of them. */}}
{{- define "paritas.environment" -}}
{{- $ours := list
    (dict "name" "PARITAS_DATA" "value" (ternary "/var/lib/paritas/control" "/var/lib/paritas" (eq .component "controller")))
    (dict "name" "HOME" "value" "/tmp")
    (dict "name" "PYTHONDONTWRITEBYTECODE" "value" "1") -}}
{{- if and (eq .component "detectors") (eq .root.Values.detectors.engine "flink") -}}
{{- $ours = append $ours (dict "name" "FLINK_LOG_DIR" "value" "/tmp") -}}
{{- end -}}
{{- $given := list -}}
{{- range .values.extraEnv }}{{ $given = append $given .name }}{{ end -}}
{{- $all := list -}}
{{- range $ours }}{{ if not (has .name $given) }}{{ $all = append $all . }}{{ end }}{{ end -}}
{{- concat $all (.values.extraEnv | default list) | toYaml -}}
{{- end -}}

{{/* Startup and liveness on a health page: a process that is alive but cannot do its work is not restarted. */}}
{{- define "paritas.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ .port }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{- define "paritas.resources" -}}
{{- if .values.resources -}}
{{- toYaml .values.resources -}}
{{- else -}}
{{- $limits := get (dict
    "controller" (dict "cpu" "1" "memory" "512Mi" "ephemeral-storage" "1Gi" "ask" "100m")
    "detectors" (dict "cpu" "1" "memory" "1Gi" "ephemeral-storage" "1Gi" "ask" "250m")
    "roster" (dict "cpu" "250m" "memory" "256Mi" "ephemeral-storage" "256Mi" "ask" "25m")
    "operator" (dict "cpu" "500m" "memory" "512Mi" "ephemeral-storage" "256Mi" "ask" "50m")
    "topics" (dict "cpu" "500m" "memory" "256Mi" "ephemeral-storage" "256Mi" "ask" "50m")
    "health" (dict "cpu" "250m" "memory" "256Mi" "ephemeral-storage" "256Mi" "ask" "25m")
  ) .component -}}
{{- $guaranteed := eq .root.Values.resourcesPreset "guaranteed" -}}
requests:
  cpu: {{ ternary $limits.cpu $limits.ask $guaranteed | quote }}
  memory: {{ $limits.memory }}
  ephemeral-storage: {{ index $limits "ephemeral-storage" }}
limits:
  cpu: {{ $limits.cpu | quote }}
  memory: {{ $limits.memory }}
  ephemeral-storage: {{ index $limits "ephemeral-storage" }}
{{- end -}}
{{- end -}}

{{- define "paritas.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: state
    labels:
      {{- include "paritas.selectorLabels" . | nindent 6 }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .values.persistence.storageClassName }}
    storageClassName: {{ . | quote }}
    {{- end }}
    resources:
      requests:
        storage: {{ include "paritas.text" .values.persistence.size | quote }}
{{- end -}}
