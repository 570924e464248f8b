{{/* What the schema cannot say: every fault at once, each with what to write. */}}
{{- define "paritas.check" -}}
{{- $faults := list -}}
{{- $v := .Values -}}
{{- if not $v.kafka.bootstrap -}}
{{- $faults = append $faults "kafka.bootstrap is empty: name the brokers, such as [kafka-0.kafka:9092]; to try Paritas without Kafka, run `paritas up` on one machine" -}}
{{- end -}}
{{- if and $v.kafka.sasl.mechanism (not $v.kafka.sasl.secretName) -}}
{{- $faults = append $faults "kafka.sasl.secretName is empty: name the secret that holds the password or the token" -}}
{{- end -}}
{{- if and $v.kafka.sasl.mechanism (ne $v.kafka.sasl.mechanism "OAUTHBEARER") (not $v.kafka.sasl.username) -}}
{{- $faults = append $faults (printf "kafka.sasl.username is empty: %s needs one" $v.kafka.sasl.mechanism) -}}
{{- end -}}
{{- if and (or $v.kafka.tls.certificateKey $v.kafka.tls.keyKey) (not (and $v.kafka.tls.certificateKey $v.kafka.tls.keyKey $v.kafka.tls.secretName)) -}}
{{- $faults = append $faults "kafka.tls: a client certificate needs secretName, certificateKey and keyKey" -}}
{{- end -}}
{{- if and $v.kafka.tls.secretName (not $v.kafka.tls.enabled) -}}
{{- $faults = append $faults "kafka.tls.secretName is set and kafka.tls.enabled is false: enable it" -}}
{{- end -}}
{{- if and $v.contracts $v.contractsFrom.configMap -}}
{{- $faults = append $faults "contracts and contractsFrom.configMap are both set: keep one" -}}
{{- end -}}
{{- if and $v.contractsFrom.names (not $v.contractsFrom.configMap) -}}
{{- $faults = append $faults "contractsFrom.names needs contractsFrom.configMap" -}}
{{- end -}}
{{- if and $v.operator.enabled $v.contracts -}}
{{- $faults = append $faults "operator.enabled makes the ConfigMap of contracts from KernelContract objects: move contracts into such objects, and name those that get a detector in contractsFrom.names" -}}
{{- end -}}
{{- if and $v.operator.enabled (not $v.contractsFrom.configMap) -}}
{{- $faults = append $faults "operator.enabled needs contractsFrom.configMap: the ConfigMap that it writes, such as paritas-contracts" -}}
{{- end -}}
{{- $fullname := include "paritas.fullname" . -}}
{{- if and $v.controller.enabled (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname)) -}}
{{- $faults = append $faults (printf "no Service can be named %s-controller: begin fullnameOverride with a letter, and write small letters, digits and '-' only" $fullname) -}}
{{- end -}}
{{- if not (regexMatch "[a-z0-9]$" (include "paritas.name" .)) -}}
{{- $faults = append $faults (printf "no label can be %s: shorten nameOverride to 40 characters" (include "paritas.name" .)) -}}
{{- end -}}
{{- range (include "paritas.contractNames" . | fromJsonArray) -}}
{{- $name := include "paritas.componentName" (dict "root" $ "component" "detectors" "contract" .) -}}
{{- if gt (len $name) 52 -}}
{{- $faults = append $faults (printf "the name %s has %d characters, and a StatefulSet takes 52: set a short fullnameOverride, or shorten the contract's name" $name (len $name)) -}}
{{- end -}}
{{- end -}}
{{- if and (not $v.controller.enabled) (or $v.operator.enabled (include "paritas.contractNames" . | fromJsonArray)) -}}
{{- $faults = append $faults "controller.enabled is false: detectors and operator need a controller, so leave contracts and operator to its release" -}}
{{- end -}}
{{- with $v.controller -}}
{{- if and (eq .tls.mode "secret") (not .tls.secretName) -}}
{{- $faults = append $faults "controller.tls.secretName is empty: name the secret with tls.crt, tls.key and ca.crt, or take another controller.tls.mode" -}}
{{- end -}}
{{- if and (eq .tls.mode "certManager") (not .tls.certManager.issuerRef) -}}
{{- $faults = append $faults "controller.tls.certManager.issuerRef is empty: write {name: …, kind: ClusterIssuer}" -}}
{{- end -}}
{{- if and .tls.clientCaKey (ne .tls.mode "secret") -}}
{{- $faults = append $faults "controller.tls.clientCaKey needs controller.tls.mode secret" -}}
{{- end -}}
{{- if and (eq .access.mode "secret") (not .access.secretName) -}}
{{- $faults = append $faults "controller.access.secretName is empty: name the secret with the access file that `paritas access add` writes" -}}
{{- end -}}
{{- if and (eq .access.mode "certificates") (not .tls.clientCaKey) -}}
{{- $faults = append $faults "controller.access.mode certificates needs controller.tls.clientCaKey: without it nobody can be told apart, and the controller refuses to start" -}}
{{- end -}}
{{- if and (eq .access.mode "secret") (not $v.detectors.token.secretName) (not $v.detectors.certificate.secretName) (include "paritas.contractNames" $ | fromJsonArray) (eq $v.detectors.engine "process") -}}
{{- $faults = append $faults "detectors.token.secretName is empty: with an access file of yours, name the secret with the detectors' token (role actor)" -}}
{{- end -}}
{{- if and .tls.clientCaKey (not $v.detectors.certificate.secretName) (include "paritas.contractNames" $ | fromJsonArray) (eq $v.detectors.engine "process") -}}
{{- $faults = append $faults "detectors.certificate.secretName is empty: the controller asks for clients' certificates" -}}
{{- end -}}
{{- if and .promotion.keys.secretName .promotion.keys.configMap -}}
{{- $faults = append $faults "controller.promotion.keys: name a secret or a ConfigMap, not both" -}}
{{- end -}}
{{- if and .labelDriver.enabled (not .routes) -}}
{{- $faults = append $faults "controller.labelDriver.enabled lets the controller patch pods, and controller.routes names no pod: write routes, or disable it" -}}
{{- end -}}
{{- end -}}
{{- $accounts := dict -}}
{{- range $component := list "controller" "detectors" "roster" "operator" -}}
{{- $values := get $v $component -}}
{{- $asks := or (has $component (list "roster" "operator")) (and (eq $component "controller") $v.controller.labelDriver.enabled) -}}
{{- $runs := eq $component "detectors" | ternary (include "paritas.contractNames" $ | fromJsonArray) $values.enabled -}}
{{- if and $runs $asks (not $values.serviceAccount.create) (eq ($values.serviceAccount.name | default "default") "default") -}}
{{- $faults = append $faults (printf "%s.serviceAccount names no account of its own: what the %s may ask the API server would be granted to `default`, so to every pod of the namespace; name one, or let create make it" $component $component) -}}
{{- end -}}
{{- if and $runs $values.serviceAccount.create -}}
{{- $account := include "paritas.serviceAccountName" (dict "root" $ "component" $component "values" $values) -}}
{{- with get $accounts $account -}}
{{- $faults = append $faults (printf "%s.serviceAccount and %s.serviceAccount would both make the account %s: give each its own name, or let only one create it" . $component $account) -}}
{{- end -}}
{{- $_ := set $accounts $account $component -}}
{{- end -}}
{{- end -}}
{{- if eq $v.detectors.engine "flink" -}}
{{- if eq $v.kafka.sasl.mechanism "OAUTHBEARER" -}}
{{- $faults = append $faults "kafka.sasl.mechanism OAUTHBEARER is not for detectors.engine flink: take SCRAM or PLAIN, or the engine process" -}}
{{- end -}}
{{- if not $v.detectors.flink.checkpointsDir -}}
{{- $faults = append $faults "detectors.flink.checkpointsDir is empty: name a place that every task manager reaches, such as s3://bucket/paritas" -}}
{{- end -}}
{{- if and (not $v.detectors.flink.cluster.create) (not $v.detectors.flink.cluster.restAddress) -}}
{{- $faults = append $faults "detectors.flink.cluster.restAddress is empty: name the session cluster's REST service, or let cluster.create make one" -}}
{{- end -}}
{{- end -}}
{{- if $v.detectors.floors.names -}}
{{- if not $v.detectors.floors.configMap -}}
{{- $faults = append $faults "detectors.floors.names needs detectors.floors.configMap" -}}
{{- end -}}
{{- end -}}
{{- if and $v.operator.enabled (eq $v.controller.access.mode "secret") (not $v.operator.token.secretName) -}}
{{- $faults = append $faults "operator.token.secretName is empty: with an access file of yours, name the secret with the operator's token (role subscriber)" -}}
{{- end -}}
{{- if and $v.operator.enabled $v.controller.tls.clientCaKey -}}
{{- $faults = append $faults "operator.enabled has no certificate to show: leave controller.tls.clientCaKey empty" -}}
{{- end -}}
{{- range $name := list "kafkaPorts" "apiServerPorts" -}}
{{- range (get $v.networkPolicy $name | default list) -}}
{{- $ends := splitList "-" (include "paritas.text" .) -}}
{{- if or (gt (last $ends | int) 65535) (gt (first $ends | int) (last $ends | int)) -}}
{{- $faults = append $faults (printf "networkPolicy.%s: %s is no range of ports: write the lower one first, and none above 65535" $name (include "paritas.text" .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $faults -}}
{{- fail (printf "\n  - %s\n" (join "\n  - " .)) -}}
{{- end -}}
{{- end -}}

{{- define "paritas.contractNames" -}}
{{- if .Values.contractsFrom.configMap -}}
{{- .Values.contractsFrom.names | default list | toJson -}}
{{- else -}}
{{- keys (.Values.contracts | default dict) | sortAlpha | toJson -}}
{{- end -}}
{{- end -}}

{{- define "paritas.contractsConfigMap" -}}
{{- .Values.contractsFrom.configMap | default (printf "%s-contracts" (include "paritas.fullname" .)) -}}
{{- end -}}
