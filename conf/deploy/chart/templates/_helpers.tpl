{{- define "offsetlake.name" -}}
{{- $name := ternary .Release.Name (printf "%s-offsetlake" .Release.Name) (contains "offsetlake" .Release.Name) -}}
{{- $name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "offsetlake.selector" -}}
app.kubernetes.io/name: offsetlake
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "offsetlake.labels" -}}
{{ include "offsetlake.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* Whether there is a volume: "true", or nothing. Without the job and without a root, the settings name the roots. */}}
{{- define "offsetlake.hasVolume" -}}
{{- if and .Values.job.enabled (or (not .Values.tables.root) (not .Values.job.checkpoint)) -}}true{{- end -}}
{{- end -}}

{{/* Whether serve needs the volume: its tables are on it. */}}
{{- define "offsetlake.sharesVolume" -}}
{{- if and .Values.job.enabled .Values.serve.enabled (not .Values.tables.root) -}}true{{- end -}}
{{- end -}}

{{- define "offsetlake.claim" -}}
{{- .Values.volume.existingClaim | default (include "offsetlake.name" .) -}}
{{- end -}}

{{- define "offsetlake.tableRoot" -}}
{{- if .Values.tables.root -}}{{ .Values.tables.root }}
{{- else if .Values.job.enabled -}}/var/lib/offsetlake/warehouse
{{- end -}}
{{- end -}}

{{/* The settings file of a component: (list $ "job"). */}}
{{- define "offsetlake.settings" -}}
{{- $values := (index . 0).Values -}}
{{- list $values.settings (index $values (index . 1)).settings | compact | join "\n" -}}
{{- end -}}

{{/* The ports of Kafka listeners that other machines can reach, with blanks between. */}}
{{- define "offsetlake.kafkaPorts" -}}
{{- $ports := list -}}
{{- range dig "serve" "kafka" list (include "offsetlake.settings" (list . "serve") | fromToml) -}}
{{- if not (regexMatch "^(127\\.|localhost:|\\[::1\\])" .listen) -}}
{{- $ports = append $ports (regexFind "[0-9]+$" .listen) -}}
{{- end -}}
{{- end -}}
{{- join " " $ports -}}
{{- end -}}

{{/* Refuses values that would have no effect, and pods that would end with exit code 2: (list $ "job"). */}}
{{- define "offsetlake.check" -}}
{{- $values := (index . 0).Values -}}
{{- $component := index . 1 -}}
{{- $settings := include "offsetlake.settings" . | fromToml -}}
{{- if hasKey $settings "Error" -}}
{{- fail (printf "settings, %s.settings: expected TOML, one after the other, found an error: %s" $component $settings.Error) -}}
{{- end -}}
{{- range list
  (list "[source] bootstrap_servers" (dig "source" "bootstrap_servers" "" $settings) "job.bootstrapServers")
  (list "[tables] root" (dig "tables" "root" "" $settings) "tables.root")
  (list "[job] checkpoint" (dig "job" "checkpoint" "" $settings) "job.checkpoint")
  (list "[serve.http] token_file" (dig "serve" "http" "token_file" "" $settings) "serve.token.secret")
  (list "[serve.http] behind_proxy" (dig "serve" "http" "behind_proxy" "" $settings) "serve.behindProxy")
-}}
{{- if index . 1 -}}
{{- fail (printf "settings: expected no %s, found %q. Set the value %s of the chart instead." (index . 0) (index . 1) (index . 2)) -}}
{{- end -}}
{{- end -}}
{{- if dig "serve" "http" "listen" "" $settings -}}
{{- fail "settings: expected no [serve.http] listen, found one. The chart sets it: port 8720 of the pod." -}}
{{- end -}}
{{- if dig "serve" "http" "certificate_file" "" $settings -}}
{{- fail "settings: expected no [serve.http] certificate_file, found one: probes and Prometheus ask without TLS. Let an Ingress or a mesh add it." -}}
{{- end -}}
{{- range (index $values $component).env -}}
{{- if and (hasKey . "value") (regexMatch "(?i)(password|secret|token|_key|credentials)$" .name) -}}
{{- fail (printf "%s.env: expected valueFrom for %s, since it looks like a secret, found its value. Name a Secret in secretKeyRef." $component .name) -}}
{{- end -}}
{{- end -}}
{{- if eq $component "serve" -}}
{{- if not (or $values.serve.token.secret $values.serve.behindProxy) -}}
{{- fail "serve.token.secret: expected the name of a Secret, because serve refuses other machines without a token, found none. Create one, or set serve.behindProxy if a proxy in front restricts access." -}}
{{- end -}}
{{- range dig "serve" "kafka" list $settings -}}
{{- $certified := and (eq (.security_protocol | default "") "SSL") (eq (get (.broker | default dict) "ssl.client.auth") "required") -}}
{{- if not (or (regexMatch "^(127\\.|localhost:|\\[::1\\])" .listen) (eq (.security_protocol | default "") "SASL_SSL") $certified) -}}
{{- fail (printf "serve.settings: expected security_protocol = \"SASL_SSL\", or \"SSL\" with \"ssl.client.auth\" = \"required\", for the Kafka listener %s, since other pods can reach it, found %q. Set it and a certificate_file, and add [[serve.principals]]; or listen on 127.0.0.1." .listen (.security_protocol | default "PLAINTEXT")) -}}
{{- end -}}
{{- end -}}
{{- $clusters := dig "serve" "clusters" "" $settings -}}
{{- if and $clusters (or $values.job.enabled $values.tables.root) -}}
{{- fail "serve.settings: expected [[serve.clusters]] only without a job and without tables.root, since each cluster has a table_root, found both. Serve several clusters from a release of its own, with job.enabled false." -}}
{{- end -}}
{{- if not (or $clusters $values.job.enabled $values.tables.root) -}}
{{- fail "tables.root: expected a URL, or [[serve.clusters]] in serve.settings, because this release has no job whose tables it could serve, found neither." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What both pods have in common: nothing that they do not need. */}}
{{- define "offsetlake.pod" -}}
serviceAccountName: {{ include "offsetlake.name" . }}
automountServiceAccountToken: false
# Kubernetes would set OFFSETLAKE_SERVE_PORT and others, which offsetlake refuses as unknown settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001 # the user that the images have
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch # else the modes of all files change at each start
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if include "offsetlake.sharesVolume" . }}
# A volume that one node can mount: both pods are on the same node, whichever starts first.
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "offsetlake.selector" . | nindent 12 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod, which restarts it when its settings change: (list $ "job"). */}}
{{- define "offsetlake.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- with $root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "offsetlake.selector" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
annotations:
  checksum/settings: {{ include "offsetlake.settings" . | sha256sum }}
  {{- with $root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "offsetlake.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "offsetlake.secretMounts" -}}
{{- range . }}
- name: {{ printf "secret-%s" . | replace "." "-" | trunc 63 | trimSuffix "-" }}
  mountPath: /secrets/{{ . }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "offsetlake.secretVolumes" -}}
{{- range . }}
- name: {{ printf "secret-%s" . | replace "." "-" | trunc 63 | trimSuffix "-" }}
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end -}}
