package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// webConfig writes a --web.config.file with TLS and one user, and returns it with the
// pool that trusts its certificate.
func webConfig(t *testing.T) (file string, pool *x509.CertPool) {
	t.Helper()
	// A certificate for 127.0.0.1 that is made already.
	made := httptest.NewTLSServer(nil)
	made.Close()
	secret, err := x509.MarshalPKCS8PrivateKey(made.TLS.Certificates[0].PrivateKey)
	must(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate().Raw})
	dir := t.TempDir()
	for name, text := range map[string][]byte{
		"cert.pem": public,
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		"web.yml": []byte(`tls_server_config:
  cert_file: cert.pem
  key_file: key.pem
basic_auth_users:
  prometheus: $2a$04$vbhQrg83MZfrcjXaVz5j/OvHUcAoBQktmhAh/EDEYwL58.Pm3eKt2 # secret
`),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	return filepath.Join(dir, "web.yml"), pool
}

func TestTLSAndPassword(t *testing.T) {
	file, pool := webConfig(t)
	d := start(t, "--web.config.file", file)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	ask := func(password string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "https://"+d.address+"/metrics", nil)
		must(t, err)
		if password != "" {
			req.SetBasicAuth("prometheus", password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%v: %s", err, d.said())
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for password, want := range map[string]int{"secret": 200, "": 401, "wrong": 401} {
		if got := ask(password); got != want {
			t.Errorf("password %q: status %d, want %d", password, got, want)
		}
	}
	if status, _ := d.get("/metrics"); status != http.StatusBadRequest { // plain HTTP
		t.Errorf("status %d without TLS", status)
	}
	d.end()
}
