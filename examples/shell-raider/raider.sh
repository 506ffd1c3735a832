#!/bin/sh
# A stream raider that runs its prompt as a shell command, if it may. Needs awk and perl.
json() { printf '%s\n' "$1" | awk '{ gsub(/[\\"]/, "\\\\&"); gsub(/[[:cntrl:]]/, " "); printf "%s%s", n, $0; n = "\\n" }'; }
event() { seq=$((seq + 1)); printf '{"version":1,"seq":%d,"time":%d,%s}\n' "$seq" "$(date +%s)" "$1"; }
event '"type":"run.started"'
input="\"input\":{\"command\":\"$(json "$1")\"}"
answer=$(perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(shift) or exit; print $s shift, "\n"; $s->flush; print scalar <$s>' \
  "$RAIDERFLEET_PERMISSION_SOCKET" "{\"id\":1,\"tool\":\"sh\",\"kind\":\"execute\",$input,\"reason\":\"The prompt says so.\"}")
case $answer in *'"decision":"allow_'*) said=$(sh -c "$1" 2>&1) ;; *) said="That is not allowed." ;; esac
event "\"type\":\"run.finished\",\"status\":\"completed\",\"response\":\"$(json "$said")\""
