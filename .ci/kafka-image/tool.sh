#!/bin/bash
# One program under the names of Kafka's tools.
set -euo pipefail
case ${0##*/} in
  kafka-topics.sh) tool=org.apache.kafka.tools.TopicCommand ;;
  kafka-broker-api-versions.sh) tool=org.apache.kafka.tools.BrokerApiVersionsCommand ;;
  *) echo "${0##*/} is not in this image" >&2; exit 2 ;;
esac
exec "$JAVA_HOME/bin/java" -Xmx128m -XX:TieredStopAtLevel=1 -Dlog4j2.level=ERROR -cp '/opt/kafka/libs/*' "$tool" "$@"
