{{- define "longshore.pod" -}}
{{- $tls := and .Values.tls.secretName (not .Values.bootstrap) -}}
metadata:
  labels:
    {{- include "longshore.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A new configuration replaces the pods.
    checksum/config: {{ .Values.config | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "longshore.name" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add .Values.drainTimeoutSeconds 15 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "longshore.podSecurity" . | nindent 4 }}
  {{- if eq .Values.store.kind "postgres" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "longshore.selector" . | nindent 10 }}
  {{- end }}
  containers:
    - name: longshore
      image: {{ include "longshore.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve, --config, /etc/longshore/longshore.toml]
      env:
        - name: LONGSHORE_LISTEN
          value: {{ ternary "127.0.0.1:7070" "0.0.0.0:7070" .Values.bootstrap | quote }}
        - name: LONGSHORE_METRICS_LISTEN
          value: {{ printf "0.0.0.0:%v" .Values.metrics.port | quote }}
        - name: LONGSHORE_DRAIN_TIMEOUT
          value: {{ printf "%vs" .Values.drainTimeoutSeconds | quote }}
        - name: LONGSHORE_LOG
          value: {{ .Values.log | quote }}
        - name: LONGSHORE_LOG_FORMAT
          value: json
        {{- if eq .Values.store.kind "postgres" }}
        - name: LONGSHORE_STORE
          valueFrom:
            secretKeyRef:
              name: {{ required "store.postgres.secretName names the secret with the URL" .Values.store.postgres.secretName }}
              key: {{ .Values.store.postgres.secretKey }}
        {{- else }}
        - name: LONGSHORE_DATA
          value: /data
        {{- end }}
        {{- if $tls }}
        - name: LONGSHORE_TLS_CERT
          value: /etc/longshore-tls/tls.crt
        - name: LONGSHORE_TLS_KEY
          value: /etc/longshore-tls/tls.key
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: 7070
        - name: metrics
          containerPort: {{ .Values.metrics.port }}
      {{- if .Values.bootstrap }}
      readinessProbe:
        exec:
          command: [/usr/bin/longshore, health]
        periodSeconds: 5
        timeoutSeconds: 3
      {{- else }}
      # The first start after a power failure verifies the WAL and loads all live jobs.
      startupProbe:
        httpGet: { path: /livez, port: http{{ if $tls }}, scheme: HTTPS{{ end }} }
        periodSeconds: 5
        failureThreshold: 120
      livenessProbe:
        httpGet: { path: /livez, port: http{{ if $tls }}, scheme: HTTPS{{ end }} }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: { path: /readyz, port: http{{ if $tls }}, scheme: HTTPS{{ end }} }
        periodSeconds: 5
        timeoutSeconds: 3
      {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- include "longshore.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: /etc/longshore
          readOnly: true
        - name: tmp
          mountPath: /tmp
        {{- if $tls }}
        - name: tls
          mountPath: /etc/longshore-tls
          readOnly: true
        {{- end }}
        {{- if eq .Values.store.kind "embedded" }}
        - name: data
          mountPath: /data
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "longshore.name" . }}
    - name: tmp
      emptyDir: {}
    {{- if $tls }}
    - name: tls
      secret:
        secretName: {{ .Values.tls.secretName }}
        defaultMode: 0440
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
