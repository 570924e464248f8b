{{/* Names and labels that every template uses. */}}

{{- define "paritas.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: the longest suffix, of a detector, is "-detect-" and a contract's name. */}}
{{- define "paritas.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "paritas.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "paritas.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of an object of a component.  Call: (dict "root" $ "component" "controller"). */}}
{{- define "paritas.labels" -}}
helm.sh/chart: {{ include "paritas.chart" .root }}
{{ include "paritas.selectorLabels" . }}
{{ include "paritas.describingLabels" (dict "root" .root "given" .root.Values.commonLabels "managed" true) | trim }}
{{- end -}}

{{/* Labels that nothing selects by.  What is given wins: a key that stands twice is refused by Flux and Kustomize. */}}
{{- define "paritas.describingLabels" -}}
{{- $given := .given | default dict -}}
{{- if not (hasKey $given "app.kubernetes.io/version") }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end }}
{{- if .managed }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}
{{- if not (hasKey $given "app.kubernetes.io/part-of") }}
app.kubernetes.io/part-of: paritas
{{- end }}
{{- with $given }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What selects a component's pods: it must never change, so commonLabels are not in it.  Call: as paritas.labels. */}}
{{- define "paritas.selectorLabels" -}}
app.kubernetes.io/name: {{ include "paritas.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .contract }}
paritas.dev/contract: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* An image, by digest where there is one.  Call: (dict "root" $ "image" .Values.image). */}}
{{- define "paritas.image" -}}
{{- $name := .image.repository -}}
{{- with .image.registry -}}{{- $name = printf "%s/%s" . $name -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* A value as text: %v would make 1e+06 of a million, as values of a file are floats. */}}
{{- define "paritas.text" -}}
{{- if kindIs "string" . -}}{{ . }}{{- else -}}{{ toJson . }}{{- end -}}
{{- end -}}

{{- define "paritas.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "paritas.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Where a pod may run and what it may need.  Call: (dict "root" $ "values" .Values.controller). */}}
{{- define "paritas.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Kafka's settings as the `kafka:` section of an agent's destination (docs/agent.md): passwords stand in files. */}}
{{- define "paritas.kafkaSection" -}}
{{- $kafka := .Values.kafka -}}
kafka:
  bootstrap:
    {{- toYaml $kafka.bootstrap | nindent 4 }}
  topic: {{ $kafka.topic | quote }}
  {{- with $kafka.compression }}
  compression: {{ . }}
  {{- end }}
  {{- if $kafka.tls.enabled }}
  {{- if $kafka.tls.secretName }}
  tls:
    {{- with $kafka.tls.caKey }}
    ca_file: {{ printf "/etc/paritas/secrets/kafka-tls/%s" . | quote }}
    {{- end }}
    {{- with $kafka.tls.certificateKey }}
    certificate_file: {{ printf "/etc/paritas/secrets/kafka-tls/%s" . | quote }}
    {{- end }}
    {{- with $kafka.tls.keyKey }}
    key_file: {{ printf "/etc/paritas/secrets/kafka-tls/%s" . | quote }}
    {{- end }}
    check_hostname: {{ $kafka.tls.checkHostname }}
  {{- else }}
  tls: {check_hostname: {{ $kafka.tls.checkHostname }}}
  {{- end }}
  {{- end }}
  {{- with $kafka.sasl.mechanism }}
  sasl:
    mechanism: {{ . }}
    {{- if eq . "OAUTHBEARER" }}
    token_file: {{ printf "/etc/paritas/secrets/kafka-sasl/%s" $kafka.sasl.secretKey | quote }}
    {{- else }}
    username: {{ $kafka.sasl.username | quote }}
    password_file: {{ printf "/etc/paritas/secrets/kafka-sasl/%s" $kafka.sasl.secretKey | quote }}
    {{- end }}
  {{- end }}
{{- end -}}

{{/* Volumes and mounts of the secrets that the section names.  Mode 288 is 0440: root's, and the pod's group reads it. */}}
{{- define "paritas.kafkaSecretVolumes" -}}
{{- if and .Values.kafka.tls.enabled .Values.kafka.tls.secretName }}
- name: kafka-tls
  secret:
    secretName: {{ .Values.kafka.tls.secretName | quote }}
    defaultMode: 288
{{- end }}
{{- if .Values.kafka.sasl.mechanism }}
- name: kafka-sasl
  secret:
    secretName: {{ .Values.kafka.sasl.secretName | quote }}
    defaultMode: 288
{{- end }}
{{- end -}}

{{- define "paritas.kafkaSecretMounts" -}}
{{- if and .Values.kafka.tls.enabled .Values.kafka.tls.secretName }}
- name: kafka-tls
  mountPath: /etc/paritas/secrets/kafka-tls
  readOnly: true
{{- end }}
{{- if .Values.kafka.sasl.mechanism }}
- name: kafka-sasl
  mountPath: /etc/paritas/secrets/kafka-sasl
  readOnly: true
{{- end }}
{{- end -}}

{{- define "paritas.bootstrapPorts" -}}
{{- $ports := list -}}
{{- range .Values.kafka.bootstrap -}}{{- $ports = append $ports (splitList ":" . | last | int) -}}{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}

{{/* Ports of a NetworkPolicy's rule; each is a number or a range such as 30000-32767.  No port at all would be every port. */}}
{{- define "paritas.policyPorts" -}}
{{- $ports := list -}}
{{- range . }}{{ $ports = append $ports (include "paritas.text" .) }}{{ end -}}
{{- range (uniq $ports) }}
{{- $ends := splitList "-" . }}
- {port: {{ first $ends }}, {{ with rest $ends }}endPort: {{ first . }}, {{ end }}protocol: TCP}
{{- end }}
{{- end -}}
