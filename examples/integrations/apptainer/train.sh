#!/bin/bash
# A training in an Apptainer image whose environment is cleaned, or that sees nothing
# of the host but what is bound: rsswarden stands outside, where the limit is.
#
#     train.sh --cleanenv image.sif python train.py
#     train.sh --contain --bind "$PWD" image.sif python train.py
#
# sh is started by rsswarden and so knows both variables; image.sif and what follows
# are passed on as they are.
exec rsswarden run -- sh -c '
	exec apptainer exec \
		--env RSSWARDEN_DIR="$RSSWARDEN_DIR" --env PYTHONPATH="$PYTHONPATH" \
		--bind "$RSSWARDEN_DIR" --bind "${PYTHONPATH%%:*}" "$@"' sh "$@"
