#!/bin/sh
# A namespace of 16 bundles and four producers whose rates lie far apart, so that bundles are unequal.
set -eu
ADMIN="bin/pulsar-admin --admin-url http://broker-1:8080"
URL=pulsar://broker-1:6650,broker-2:6650,broker-3:6650

$ADMIN tenants get demo >/dev/null 2>&1 || $ADMIN tenants create demo --allowed-clusters compose
$ADMIN namespaces policies demo/traffic >/dev/null 2>&1 || $ADMIN namespaces create demo/traffic --bundles 16

started=
for load in huge:1500 large:400 middle:100 small:20; do
  topic="persistent://demo/traffic/${load%%:*}"
  bin/pulsar-perf produce --service-url "$URL" --rate "${load##*:}" --size 1024 --num-topic 6 "$topic" >/dev/null &
  started="$started $!"
  bin/pulsar-perf consume --service-url "$URL" --num-topic 6 --subscriptions traffic "$topic" >/dev/null &
  started="$started $!"
done
touch /tmp/traffic-started
# Any of them that ends ends all; the engine starts the container again. Not every `sh` has `wait -n`.
all_run() { for pid in $started; do kill -0 "$pid" 2>/dev/null || return 1; done; }
while all_run; do sleep 2; done
exit 1
