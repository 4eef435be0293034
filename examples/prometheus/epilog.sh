#!/bin/sh
# Epilog of slurm.conf: a run that was killed with all of its processes leaves its file
# of metrics behind, and only its user or root may remove it.
dir=${RSSWARDEN_TEXTFILE:-/var/lib/prometheus/rsswarden}
case $SLURM_JOB_ID in
'' | *[!0-9]*) exit 0 ;;
esac
rm -f "$dir"/rsswarden_"$SLURM_JOB_ID"_*
exit 0
