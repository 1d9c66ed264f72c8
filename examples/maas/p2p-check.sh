#!/bin/bash
# --- Start MAAS 1.0 script metadata ---
# name: p2p-check
# title: PCIe peer-to-peer between GPUs
# description: Checks whether firmware, ACS, IOMMU and Resizable BAR allow peer-to-peer traffic between the GPUs.
# script_type: testing
# hardware_type: node
# tags: [gpu, p2p]
# parallel: any
# timeout: 00:10:00
# destructive: false
# packages: {url: http://files.lab/mkp2pimg/mkp2pimg}
# --- End MAAS 1.0 script metadata ---
#
# MAAS runs its own Ubuntu and nothing else, so this checks and does not measure. URL
# of the program: see packages above; it is the one file that
# CGO_ENABLED=0 go build ./cmd/mkp2pimg makes.

set -u

program=$(mktemp)
trap 'rm -f "$program"' EXIT
# What MAAS downloaded need not be executable.
install -m 0755 "${DOWNLOAD_PATH:?is set by MAAS}/mkp2pimg" "$program" || exit 1

# Registers of PCI devices beyond the first 64 bytes are for root.
answer=$(sudo -n "$program" check --verbose)
code=$?
echo "$answer"

# The exit codes of "mkp2pimg check": a machine of which it could not be told (3) has
# not passed, one without two GPUs (3 as well) is none of this test's.
case $code in
	0) status=passed ;;
	1) status=degraded ;;
	*) status=failed ;;
esac
case $answer in
	"P2P NO GPU"*) status=skipped ;;
esac
echo "status: $status" > "${RESULT_PATH:?is set by MAAS}"
[ "$status" != failed ]
