{{/*
The agent beside an engine, for this chart and for yours.  A chart that has this one as a dependency writes, in a pod:

  spec:
    initContainers:
      {{- include "paritas.sidecar.container" .Subcharts.paritas | nindent 6 }}
    containers:
    - name: engine
      env:
        {{- include "paritas.sidecar.env" .Subcharts.paritas | nindent 8 }}
      volumeMounts:
        {{- include "paritas.sidecar.mounts" .Subcharts.paritas | nindent 8 }}
    volumes:
      {{- include "paritas.sidecar.volumes" .Subcharts.paritas | nindent 6 }}

and, once a namespace, {{ include "paritas.sidecar.configMap" .Subcharts.paritas }}.  Every part is a list, so yours go before
or after it.
*/}}

{{/* The sidecar itself: an init container that goes on running (Kubernetes 1.29 and newer). */}}
{{- define "paritas.sidecar.container" -}}
{{- $sidecar := .Values.sidecar -}}
- name: paritas-agent
  image: {{ include "paritas.image" (dict "root" . "image" $sidecar.image) }}
  imagePullPolicy: {{ $sidecar.image.pullPolicy }}
  restartPolicy: Always
  args: [agent, --config, /etc/paritas/agent/agent.yaml]
  {{- if eq $sidecar.probes.kind "httpGet" }}
  ports:
  - name: paritas-health
    containerPort: {{ $sidecar.port }}
    protocol: TCP
  {{- end }}
  {{- if $sidecar.waitForAgent }}
  startupProbe:
    {{- include "paritas.sidecar.probe" (dict "sidecar" $sidecar "path" "/healthz") | nindent 4 }}
    {{- toYaml $sidecar.probes.startup | nindent 4 }}
  {{- end }}
  livenessProbe:
    {{- include "paritas.sidecar.probe" (dict "sidecar" $sidecar "path" "/healthz") | nindent 4 }}
    {{- toYaml $sidecar.probes.liveness | nindent 4 }}
  {{- if $sidecar.failClosed }}
  readinessProbe:
    {{- include "paritas.sidecar.probe" (dict "sidecar" $sidecar "path" "/readyz") | nindent 4 }}
    {{- toYaml $sidecar.probes.readiness | nindent 4 }}
  {{- end }}
  resources:
    {{- toYaml $sidecar.resources | nindent 4 }}
  securityContext:
    {{- include "paritas.containerSecurityContext" . | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
  - name: paritas-run
    mountPath: /run/paritas
  - name: paritas-spool
    mountPath: /var/lib/paritas
    {{- with $sidecar.spool.subPathExpr }}
    subPathExpr: {{ . | quote }}
    {{- end }}
  - name: paritas-agent-config
    mountPath: /etc/paritas/agent
    readOnly: true
  - name: paritas-tmp
    mountPath: /tmp
  - name: paritas-no-token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- range (include "paritas.sidecar.secrets" . | fromYamlArray) }}
  - name: {{ .name }}
    mountPath: /etc/paritas/secrets/{{ trimPrefix "paritas-" .name }}
    readOnly: true
  {{- end }}
  env:
  - name: PARITAS_AGENT_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
{{- end -}}

{{/* What is asked of the health page.  Call: (dict "sidecar" .Values.sidecar "path" "/healthz"). */}}
{{- define "paritas.sidecar.probe" -}}
{{- if eq .sidecar.probes.kind "httpGet" -}}
httpGet:
  path: {{ .path }}
  port: {{ .sidecar.port }}
{{- else -}}
exec:
  command: [paritas, health, {{ printf "http://127.0.0.1:%v%s" .sidecar.port .path }}]
{{- end -}}
{{- end -}}

{{/* Volumes of the pod. */}}
{{- define "paritas.sidecar.volumes" -}}
- name: paritas-agent-config
  configMap:
    name: {{ .Values.sidecar.configMap.name | quote }}
{{ include "paritas.sidecar.ownVolumes" . }}
{{- end -}}

{{/* All of them but the configuration, which an injected pod brings itself. */}}
{{- define "paritas.sidecar.ownVolumes" -}}
{{- $spool := .Values.sidecar.spool -}}
- name: paritas-run
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
- name: paritas-spool
  {{- if $spool.volume }}
  {{- toYaml $spool.volume | nindent 2 }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ $spool.sizeLimit }}
  {{- end }}
- name: paritas-tmp
  emptyDir:
    sizeLimit: 16Mi
- name: paritas-no-token
  emptyDir:
    medium: Memory
    sizeLimit: 4Ki
{{- with (include "paritas.sidecar.secrets" . | fromYamlArray) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Secrets of Kafka, readable for the agent's user whatever the pod's fsGroup is: only the agent mounts them. */}}
{{- define "paritas.sidecar.secrets" -}}
{{- $kafka := .Values.kafka -}}
{{- if and $kafka.tls.enabled $kafka.tls.secretName }}
- name: paritas-kafka-tls
  secret:
    secretName: {{ $kafka.tls.secretName | quote }}
    defaultMode: 292
    optional: true
{{- end }}
{{- if $kafka.sasl.mechanism }}
- name: paritas-kafka-sasl
  secret:
    secretName: {{ $kafka.sasl.secretName | quote }}
    defaultMode: 292
    optional: true
{{- end }}
{{- end -}}

{{/* Variables of the container that is watched. */}}
{{- define "paritas.sidecar.env" -}}
- name: PARITAS_ENABLED
  value: "1"
- name: PARITAS_AGENT
  value: unix:/run/paritas/otlp.sock
{{- with .Values.sidecar.tokenKey.secretName }}
- name: PARITAS_TOKEN_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ . | quote }}
      key: {{ $.Values.sidecar.tokenKey.secretKey | quote }}
      optional: true
{{- end }}
{{- range $name, $value := .Values.sidecar.engineEnv }}
- name: {{ $name | quote }}
  value: {{ include "paritas.text" $value | quote }}
{{- end }}
{{- end -}}

{{/* What the container that is watched mounts. */}}
{{- define "paritas.sidecar.mounts" -}}
- name: paritas-run
  mountPath: /run/paritas
{{- end -}}

{{/* The agent's configuration, docs/agent.md; `sidecar.config` wins. */}}
{{- define "paritas.sidecar.agentYaml" -}}
{{- $sidecar := .Values.sidecar -}}
{{- if not .Values.kafka.bootstrap -}}
{{- fail "kafka.bootstrap is empty: the agents do not know where to send" -}}
{{- end -}}
{{- $host := ternary "0.0.0.0" "127.0.0.1" (eq $sidecar.probes.kind "httpGet") -}}
{{- $unix := dict "path" "/run/paritas/otlp.sock" -}}
{{- if $sidecar.uids -}}
{{- $_ := set $unix "uids" $sidecar.uids -}}
{{- else -}}
{{- $_ := set $unix "any_user" true -}}
{{- end -}}
{{- $destination := include "paritas.kafkaSection" . | fromYaml -}}
{{- /* An agent that is told to end finishes the attempt to connect that it is in: this comes on top of its grace. */}}
{{- $_ := set $destination.kafka "connect_timeout" "3s" -}}
{{- $config := dict
  "spool" (dict "path" "/var/lib/paritas/spool" "limit_bytes" (int64 $sidecar.spool.limitBytes))
  "receivers" (dict "unix" $unix)
  "destination" $destination
  "health" (dict "listen" (printf "%s:%v" $host $sidecar.port))
  "grace" $sidecar.grace -}}
{{- toYaml (mergeOverwrite $config (deepCopy ($sidecar.config | default dict))) -}}
{{- end -}}

{{/* The same as a ConfigMap; once a namespace in which pods name the sidecar themselves. */}}
{{- define "paritas.sidecar.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Values.sidecar.configMap.name | quote }}
  labels:
    {{- include "paritas.labels" (dict "root" . "component" "agent") | nindent 4 }}
data:
  agent.yaml: |
    {{- include "paritas.sidecar.agentYaml" . | nindent 4 }}
{{- end -}}
