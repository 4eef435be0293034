package slurmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
)

// databaseSQL are the system tables of MariaDB, without which slurmdbd's procedures have no
// place, and where MariaDB 11 has them.
var databaseSQL = []string{"/usr/share/mysql/mysql_system_tables.sql", "/usr/share/mariadb/mariadb_system_tables.sql"}

// MissingAccounting returns why no cluster of this machine's Slurm, or of a suite's, can keep
// accounting, or nil.
func MissingAccounting(suite debian.Suite) error {
	at := func(name string) string { return name }
	if suite != "" {
		root, err := debian.Find(suite)
		if err != nil {
			return err
		}
		at = root.Path
	}
	for _, path := range []string{"/usr/sbin/mariadbd", "/usr/sbin/slurmdbd", "/usr/bin/sacct", "/usr/bin/sacctmgr"} {
		if _, err := os.Stat(at(path)); err != nil {
			return fmt.Errorf("no accounting: %w", err)
		}
	}
	_, err := systemTables(at)
	return err
}

func systemTables(at func(string) string) (text []byte, err error) {
	for _, path := range databaseSQL {
		if text, err = os.ReadFile(at(path)); err == nil {
			break
		}
	}
	return text, err
}

// startAccounting brings up MariaDB and slurmdbd, with the jobs of this cluster alone.
func (c *Cluster) startAccounting(ctx context.Context, host string) error {
	ports := c.ports[1+len(c.nodes):]
	data, bare := c.path("database"), []string{"--no-defaults", "--user=root", "--skip-grant-tables", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"}
	if err := errors.Join(os.RemoveAll(data), os.Mkdir(data, 0o700)); err != nil {
		return err
	}
	at := func(name string) string { return name }
	if c.suite != nil {
		at = c.suite.Path
	}
	tables, err := systemTables(at)
	if err != nil {
		return err
	}
	bare = append(bare, "--datadir="+data)
	argv, err := c.argv("mariadbd", append(bare, "--bootstrap"))
	if err != nil {
		return err
	}
	prepare := exec.CommandContext(ctx, argv[0], argv[1:]...)
	prepare.Stdin = strings.NewReader("create database mysql;\nuse mysql;\n" + string(tables) + "\ncreate database slurm_acct_db;\n")
	if out, err := prepare.CombinedOutput(); err != nil || bytes.Contains(out, []byte("[ERROR]")) {
		return fmt.Errorf("cannot make a database: %w: %s", err, out)
	}
	database, err := c.daemon("mariadbd", "mariadbd", append(bare, "--socket="+data+"/socket", "--bind-address=127.0.0.1", fmt.Sprint("--port=", ports[1]))...)
	if err != nil {
		return err
	}
	c.daemons = append(c.daemons, database)
	if err := c.await(ctx, "mariadbd", database, func() bool { return listens(ports[1]) }); err != nil {
		return err
	}
	text := fmt.Sprintf("AuthType=auth/munge\nAuthInfo=socket=%s\nDbdHost=%s\nDbdAddr=127.0.0.1\nDbdPort=%d\nSlurmUser=root\nPidFile=%s\nLogFile=%s\nDebugLevel=info\n"+
		"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort=%d\nStorageUser=root\nStorageLoc=slurm_acct_db\n",
		c.path("munge/socket"), host, ports[0], c.path("slurmdbd.pid"), c.path("log/slurmdbd.log"), ports[1])
	if err := os.WriteFile(c.path("etc/slurmdbd.conf"), []byte(text), 0o600); err != nil {
		return err
	}
	c.dbd, err = c.daemon("slurmdbd", "slurmdbd", "-D")
	if err != nil {
		return err
	}
	c.daemons = append(c.daemons, c.dbd)
	return c.await(ctx, "slurmdbd", c.dbd, func() bool { return listens(ports[0]) })
}

// listens says that something on this machine takes connections to a port.
func listens(port int) bool {
	conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// StopAccounting ends slurmdbd for the rest of the test's cluster.
func (c *Cluster) StopAccounting() { c.dbd.kill() }
