{{/* How the controller is reached, by those who read and by those who write. */}}

{{- define "paritas.controllerHost" -}}
{{ include "paritas.fullname" . }}-controller.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "paritas.controllerNames" -}}
{{- $service := printf "%s-controller" (include "paritas.fullname" .) -}}
{{- $inNamespace := printf "%s.%s" $service .Release.Namespace -}}
{{- concat (list $service $inNamespace (printf "%s.svc" $inNamespace) (printf "%s.svc.cluster.local" $inNamespace) "localhost") (.Values.controller.tls.dnsNames | default list) | uniq | toJson -}}
{{- end -}}

{{- define "paritas.tlsSecret" -}}
{{- if eq .Values.controller.tls.mode "secret" -}}
{{- .Values.controller.tls.secretName -}}
{{- else -}}
{{- include "paritas.fullname" . }}-controller-tls
{{- end -}}
{{- end -}}

{{- define "paritas.accessSecret" -}}
{{- if eq .Values.controller.access.mode "secret" -}}
{{- .Values.controller.access.secretName -}}
{{- else -}}
{{- include "paritas.fullname" . }}-access
{{- end -}}
{{- end -}}

{{/* Arguments with which a program of ours shows who it is.  Call: (dict "root" $ "token" bool "certificate" bool). */}}
{{- define "paritas.clientArguments" -}}
- --ca=/etc/paritas/secrets/controller-ca/ca.crt
{{- if .token }}
- --token-file=/etc/paritas/secrets/controller-token/token
{{- end }}
{{- if .certificate }}
- --certificate=/etc/paritas/secrets/controller-certificate/tls.crt
- --key=/etc/paritas/secrets/controller-certificate/tls.key
{{- end }}
{{- end -}}

{{- define "paritas.clientMounts" -}}
- name: controller-ca
  mountPath: /etc/paritas/secrets/controller-ca
  readOnly: true
{{- if .token }}
- name: controller-token
  mountPath: /etc/paritas/secrets/controller-token
  readOnly: true
{{- end }}
{{- if .certificate }}
- name: controller-certificate
  mountPath: /etc/paritas/secrets/controller-certificate
  readOnly: true
{{- end }}
{{- end -}}

{{/* "token" and "certificate" are {secretName, key}; only the authority is taken of the controller's own secret. */}}
{{- define "paritas.clientVolumes" -}}
- name: controller-ca
  secret:
    secretName: {{ include "paritas.tlsSecret" .root | quote }}
    defaultMode: 288
    items:
      - {key: ca.crt, path: ca.crt}
{{- with .token }}
- name: controller-token
  secret:
    secretName: {{ .secretName | quote }}
    defaultMode: 288
    items:
      - {key: {{ .key | quote }}, path: token}
{{- end }}
{{- with .certificate }}
- name: controller-certificate
  secret:
    secretName: {{ . | quote }}
    defaultMode: 288
{{- end }}
{{- end -}}

{{/* The token of a component, as {secretName, key} in JSON; {} where it needs none. */}}
{{- define "paritas.token" -}}
{{- if eq .root.Values.controller.access.mode "generated" -}}
{{- dict "secretName" (printf "%s-%s-token" (include "paritas.fullname" .root) .who) "key" "token" | toJson -}}
{{- else if .given.secretName -}}
{{- .given | toJson -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{- define "paritas.readsEscalations" -}}
{{- if or .Values.controller.escalationsFromKafka (eq .Values.detectors.engine "flink") -}}true{{- end -}}
{{- end -}}

{{- define "paritas.flinkAddress" -}}
{{- .Values.detectors.flink.cluster.restAddress | default (printf "%s-flink-rest.%s.svc" (include "paritas.fullname" .) .Release.Namespace) -}}
{{- end -}}
