#!/bin/sh
read parent </proc/$PPID/comm; echo "by $parent"
