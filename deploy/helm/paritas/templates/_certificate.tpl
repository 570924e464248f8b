{{/*
The certificate that the chart makes and keeps, as {files, names, notAfter, renewals, isRenewed} in JSON: the one that is
there; or a new one, of a new authority, where there is none, its names are others or its end is near.  Helm cannot read
a certificate, so an annotation says when it ends, in Unix time; without one it is left alone.
Found out once in a render: asked again it would be another.
*/}}
{{- define "paritas.certificate" -}}
{{- if not .knownCertificate -}}
{{- $names := include "paritas.controllerNames" . | fromJsonArray -}}
{{- $days := int .Values.controller.tls.validityDays -}}
{{- $known := lookup "v1" "Secret" .Release.Namespace (include "paritas.tlsSecret" .) | default dict -}}
{{- $files := $known.data -}}
{{- $notAfter := dig "metadata" "annotations" "paritas.dev/not-after" "" $known -}}
{{- $renewals := dig "metadata" "annotations" "paritas.dev/renewals" "0" $known | int -}}
{{- $near := add (now | unixEpoch) (min (mul 30 86400) (div (mul $days 86400) 3)) -}}
{{- $isEnding := and (regexMatch "^[0-9]+$" $notAfter) (lt (int64 $notAfter) $near) -}}
{{- if or (not $files) $isEnding (ne (join "," $names) (dig "metadata" "annotations" "paritas.dev/names" "" $known)) -}}
{{- $notAfter = add (now | unixEpoch) (mul $days 86400) | toString -}}
{{- /* The authority signs once and its key is thrown away: nobody can make another certificate of it. */}}
{{- $authority := genCAWithKey (printf "%s controller" (include "paritas.fullname" .)) $days (genPrivateKey "ecdsa") -}}
{{- $pair := genSignedCertWithKey (first $names) nil $names $days $authority (genPrivateKey "ecdsa") -}}
{{- $files = dict "ca.crt" (b64enc $authority.Cert) "tls.crt" (b64enc $pair.Cert) "tls.key" (b64enc $pair.Key) -}}
{{- end -}}
{{- if $isEnding }}{{ $renewals = add1 $renewals }}{{ end -}}
{{- $found := dict "files" $files "names" (join "," $names) "notAfter" $notAfter "renewals" $renewals "isRenewed" $isEnding -}}
{{- $_ := set . "knownCertificate" (toJson $found) -}}
{{- end -}}
{{- .knownCertificate -}}
{{- end -}}

{{/* What restarts those who read a certificate or its authority at their start: other names, and each renewal. */}}
{{- define "paritas.certificateMark" -}}
{{- include "paritas.controllerNames" . -}}
{{- if eq .Values.controller.tls.mode "generated" -}}
{{- with (include "paritas.certificate" . | fromJson).renewals }} {{ . }}{{ end -}}
{{- end -}}
{{- end -}}
