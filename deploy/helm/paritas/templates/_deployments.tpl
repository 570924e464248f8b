{{/*
A Deployment of one pod that talks to the API server and keeps nothing: roster and operator.
Call: (dict "root" $ "component" NAME "values" VALUES "arguments" YAML "port" NUMBER "mounts" YAML "volumes" YAML).
*/}}
{{- define "paritas.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "paritas.componentName" . }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "paritas.labels" . | nindent 4 }}
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector:
    matchLabels:
      {{- include "paritas.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      {{- include "paritas.podMetadata" . | nindent 6 }}
    spec:
      {{- include "paritas.podBasics" (merge (dict "withToken" true) .) | nindent 6 }}
      containers:
        - name: {{ .component }}
          image: {{ include "paritas.image" (dict "root" .root "image" .root.Values.image) }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            {{- .arguments | trim | nindent 12 }}
          env:
            {{- include "paritas.environment" . | nindent 12 }}
          ports:
            - {name: health, containerPort: {{ .port }}, protocol: TCP}
          {{- include "paritas.probes" (dict "port" "health") | nindent 10 }}
          resources:
            {{- include "paritas.resources" . | nindent 12 }}
          securityContext:
            {{- include "paritas.containerSecurityContext" .root | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- with .mounts | trim }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with .values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        {{- with .volumes | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
