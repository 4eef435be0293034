#!/bin/sh
echo export FROM_PROLOG=yes
