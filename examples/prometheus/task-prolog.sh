#!/bin/sh
# TaskProlog of slurm.conf: every `rsswarden run` of a job keeps its metrics where
# node_exporter reads them. The directory is one that every user may write to and
# none may remove another's file from:
#
#     install -d -m 1777 /var/lib/prometheus/rsswarden
#     node_exporter --collector.textfile.directory=/var/lib/prometheus/rsswarden …
#
# Whoever may write there can tell Prometheus anything: see SECURITY.md.
#
# Where rsswardend runs this is not needed for memory and limits; it adds what only the
# run knows: actions, ranks, roles of processes and limits on numbers.
echo "export RSSWARDEN_TEXTFILE=${RSSWARDEN_TEXTFILE:-/var/lib/prometheus/rsswarden}"
