package main_test

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestSlurmSid is [TestSlurm2411] with the newest Slurm and the newest Python that Debian has.
func TestSlurmSid(t *testing.T) {
	accountingsOn(t, debian.Sid, modes2411[:few(len(modes2411), 1)])
}

// TestSlurmSidTorch trains with the newest PyTorch that Debian has in a job of its Slurm.
func TestSlurmSidTorch(t *testing.T) { trainingsOn(t, debian.Sid) }

// TestSlurmSidRequeue is [TestRequeue] with the newest Slurm that Debian has.
func TestSlurmSidRequeue(t *testing.T) { requeueOn(t, debian.Sid, slurmtest.Linux) }
