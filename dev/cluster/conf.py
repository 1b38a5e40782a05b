"""Render the configuration files and JVM flags of every process as text, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dev.cluster.spec import BrokerInfo, ClusterSpec

LOAD_MANAGERS = {
    "modular": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "extensible": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl",
}
TRANSFER_SHEDDER = "org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder"

# Pulsar's launcher script opens these; jdk.internal.platform is how a broker reads its cgroup.
ADD_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)

# The bookie uses Pulsar's metadata driver for ZooKeeper, as Pulsar's own launcher configures it.
BOOKIE_DRIVERS = (
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)

# Room for the 2 MB znodes of the tests, on the server and on every client.
JUTE_MAX_BUFFER_BYTES = 10 * 1024 * 1024

FAST_STATS = {
    "statsUpdateFrequencyInSecs": "1",
    "statsUpdateInitialDelayInSecs": "1",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "loadBalancerReportUpdateThresholdPercentage": "1",
}


# Settings of the bookie.
BOOKIE_DIRECT_MB = 128


def jvm_flags(*, heap_mb: int, direct_mb: int) -> list[str]:
    """Return flags for a JVM that starts fast and stays small on a two-core machine."""
    return [
        f"-Xmx{heap_mb}m",
        "-Xms64m",
        f"-XX:MaxDirectMemorySize={direct_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Xshare:auto",
        "-Djava.net.preferIPv4Stack=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.leakDetectionLevel=disabled",
        f"-Djute.maxbuffer={JUTE_MAX_BUFFER_BYTES}",
        *[f"--add-opens={package}=ALL-UNNAMED" for package in ADD_OPENS],
    ]


def properties(settings: Mapping[str, str]) -> str:
    """Render ``key=value`` lines, in the given order."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def zookeeper_conf(spec: ClusterSpec, data: Path, port: int, secure: Mapping[str, str] | None = None) -> str:
    """Render zoo.cfg for one server on 127.0.0.1; data is thrown away, so nothing is synced."""
    settings = {
        "tickTime": str(spec.tick_time_ms),
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        "forceSync": "no",
        "preAllocSize": "1024",
        "audit.enable": "true" if spec.zk_audit else "false",
    }
    return properties({**settings, **(secure or {}), **spec.zk_settings})


def bookie_conf(data: Path, port: int, metadata_url: str) -> str:
    """Render the configuration of a small bookie on loopback that does not sync to disk."""
    return properties(
        {
            "bookiePort": str(port),
            "listeningInterface": "lo",
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": "true",
            "metadataServiceUri": f"metadata-store:{metadata_url}",
            "journalDirectory": str(data / "journal"),
            "ledgerDirectories": str(data / "ledgers"),
            "indexDirectories": str(data / "ledgers"),
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
            "journalSyncData": "false",
            "journalWriteData": "true",
            "journalPreAllocSizeMB": "1",
            "journalMaxSizeMB": "64",
            "journalMaxBackups": "0",
            "entryLogFilePreallocationEnabled": "false",
            "logSizeLimit": str(64 * 1024 * 1024),
            "flushInterval": "60000",
            "pageLimit": "4096",
            "numAddWorkerThreads": "1",
            "numReadWorkerThreads": "1",
            "numHighPriorityWorkerThreads": "1",
            "numJournalCallbackThreads": "1",
            "serverNumIOThreads": "2",
            "gcWaitTime": "3600000",
            "diskUsageThreshold": "0.999",
            "diskUsageWarnThreshold": "0.998",
            "httpServerEnabled": "false",
            "enableStatistics": "false",
            "allocatorPoolingPolicy": "UnpooledHeap",
            # Each entry occupies a whole read buffer until it is in the journal. With BookKeeper's buffers of 64 KiB,
            # two thousand entries fill the direct memory and the bookie exits. At the demo's rate this happens if the
            # journal does not write for two seconds. Above this limit of entries the brokers wait.
            "byteBufAllocatorSizeMin": "1024",
            "byteBufAllocatorSizeInitial": "4096",
            "byteBufAllocatorSizeMax": "65536",
            "maxAddsInProgressLimit": "1000",
        }
    )


def broker_conf(
    spec: ClusterSpec,
    broker: BrokerInfo,
    metadata_url: str,
    configuration_url: str,
    secure: Mapping[str, str] | None = None,
) -> str:
    """Render broker.conf. It contains only keys that differ from Pulsar's defaults. `spec.broker_settings` replace
    values.
    """
    settings = {
        "clusterName": spec.cluster_name,
        "metadataStoreUrl": metadata_url,
        "configurationMetadataStoreUrl": configuration_url,
        "bindAddress": broker.bind_host,
        "advertisedAddress": broker.advertised_host,
        "brokerServicePort": str(broker.service_port),
        "webServicePort": str(broker.web_port),
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
        "managedLedgerCacheSizeMB": "16",
        "loadManagerClassName": LOAD_MANAGERS[spec.mode],
        "allowAutoTopicCreation": "true",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "systemTopicEnabled": "true",
        "topicLevelPoliciesEnabled": "true",
        "functionsWorkerEnabled": "false",
        "transactionCoordinatorEnabled": "false",
        "webSocketServiceEnabled": "false",
        "authenticationEnabled": "false",
        # A test that stops a broker should not wait a minute for it.
        "brokerShutdownTimeoutMs": "5000",
        "numIOThreads": "2",
        "numHttpServerThreads": "8",
        "numOrderedExecutorThreads": "2",
        "bookkeeperNumberOfChannelsPerBookie": "2",
        "bookkeeperClientNumWorkerThreads": "2",
    }
    if spec.mode == "extensible":
        settings["loadBalancerLoadSheddingStrategy"] = TRANSFER_SHEDDER
    if spec.advertise == "proxy":
        # Only HTTP goes through the caller's proxy; the binary protocol stays direct.
        settings["advertisedListeners"] = f"internal:pulsar://{broker.bind_host}:{broker.service_port}"
        settings["internalListenerName"] = "internal"
    if spec.fast_stats:
        settings.update(FAST_STATS)
    return properties({**settings, **(secure or {}), **spec.broker_settings})


def log4j2_xml(audit_log: Path | None = None) -> str:
    """Render a log configuration: all logs go to stdout, except ZooKeeper's audit log, which goes to `audit_log`."""
    audit_appender = audit_logger = ""
    if audit_log is not None:
        audit_appender = (
            f'<File name="audit" fileName="{audit_log}" immediateFlush="true">'
            '<PatternLayout pattern="%d{ISO8601} %p %m%n"/></File>'
        )
        audit_logger = (
            '<Logger name="org.apache.zookeeper.audit" level="info" additivity="false">'
            '<AppenderRef ref="audit"/></Logger>'
        )
    return (
        '<Configuration status="error" shutdownHook="disable"><Appenders>'
        '<Console name="stdout" target="SYSTEM_OUT">'
        '<PatternLayout pattern="%d{ISO8601} [%t] %-5p %c{1} - %m%n"/></Console>'
        f"{audit_appender}</Appenders><Loggers>{audit_logger}"
        '<Root level="info"><AppenderRef ref="stdout"/></Root></Loggers></Configuration>\n'
    )
