package etcd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"hash"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/controller/apitest"
)

// server is a real etcd.
type server struct {
	cmd *exec.Cmd
	url string
	dir string
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// cluster starts n members; with certificates only for n = 1.
func cluster(t *testing.T, n int, args ...string) []*server {
	bin := apitest.Binaries()
	if bin == "" {
		t.Skip("no etcd: run `refit-lab up` once, or set KUBEBUILDER_ASSETS")
	}
	scheme := "http"
	if len(args) > 0 {
		scheme = "https"
	}
	var out []*server
	var peers, initial []string
	for i := range n {
		out = append(out, &server{url: fmt.Sprintf("%s://127.0.0.1:%d", scheme, freePort(t)), dir: t.TempDir()})
		peers = append(peers, fmt.Sprintf("http://127.0.0.1:%d", freePort(t)))
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i, s := range out {
		s.cmd = exec.Command(filepath.Join(bin, "etcd"), append([]string{"--name", fmt.Sprint("m", i), "--data-dir", s.dir, "--listen-client-urls", s.url, "--advertise-client-urls", s.url,
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(initial, ","), "--unsafe-no-fsync", "--log-level", "error"}, args...)...)
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.kill)
	}
	return out
}

func (s *server) kill() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() }

func waitFor(t *testing.T, what string, f func() string) {
	t.Helper()
	said := ""
	for range 600 {
		if said = f(); said == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("waited in vain: %s: %s", what, said)
}

func unsafe(m Member) (string, error) {
	p, err := m.Unsafe(context.Background())
	return strings.Join(p, "; "), err
}

// Of three members, one may restart while the others are healthy, and none while one is down.
func TestQuorumOfARealCluster(t *testing.T) {
	t.Parallel()
	ms := cluster(t, 3)
	m := Member{URL: ms[0].url}
	waitFor(t, "all members are well", func() string {
		p, err := unsafe(m)
		if err != nil {
			return err.Error()
		}
		return p
	})
	if n, err := m.Members(t.Context()); n != 3 || err != nil {
		t.Errorf("%d members, %v", n, err)
	}
	ms[2].kill()
	waitFor(t, "it is not safe any more", func() string {
		p, err := unsafe(m)
		if err != nil || !strings.Contains(p, "of 3 etcd members 1 others are well, and 2 must be") || !strings.Contains(p, "m2") {
			return fmt.Sprint(p, err)
		}
		return ""
	})
	again, _ := unsafe(m)
	if p, _ := unsafe(m); p != again {
		t.Errorf("other words for the same: %q, %q", again, p)
	}
	ms[0].kill()
	if _, err := unsafe(m); err == nil || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("a member that is down: %v", err)
	}
}

// A snapshot over the node's own certificates, compared with etcd's hash.
func TestSnapshotOfARealMember(t *testing.T) {
	t.Parallel()
	c := certificates(t)
	ms := cluster(t, 1, "--cert-file", c.Cert, "--key-file", c.Key, "--trusted-ca-file", c.CA, "--client-cert-auth")
	m := Member{URL: ms[0].url, Credentials: c}
	waitFor(t, "it answers", func() string {
		p, err := unsafe(m)
		if err != nil {
			return err.Error()
		}
		return p
	})
	var b bytes.Buffer
	if err := m.Snapshot(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	size, err := m.Size(t.Context())
	if err != nil || size == 0 || int64(b.Len()) < size/2 {
		t.Fatalf("%d bytes of %d: %v", b.Len(), size, err)
	}
	if err := (Member{URL: ms[0].url, Credentials: certificates(t)}).Snapshot(t.Context(), &bytes.Buffer{}); err == nil {
		t.Fatal("a snapshot with certificates of another CA")
	}
	if err := m.Snapshot(t.Context(), &fullDisk{left: 1000}); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatalf("a full disk: %v", err)
	}
}

// The snapshot holds what was written: a member that is started from it has it.
func TestTheSnapshotIsTheData(t *testing.T) {
	t.Parallel()
	ms := cluster(t, 1)
	m := Member{URL: ms[0].url}
	waitFor(t, "a key is written", func() string {
		body := fmt.Sprintf(`{"key":%q,"value":%q}`, base64.StdEncoding.EncodeToString([]byte("k")), base64.StdEncoding.EncodeToString([]byte("a value to be found")))
		resp, err := http.Post(ms[0].url+"/v3/kv/put", "application/json", strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	var b bytes.Buffer
	if err := m.Snapshot(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b.Bytes(), []byte("a value to be found")) {
		t.Fatal("the value is not in it")
	}
}

type fullDisk struct{ left int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.left -= len(b); d.left < 0 {
		return 0, fmt.Errorf("no space left on device")
	}
	return len(b), nil
}

func TestASnapshotThatIsNotWhole(t *testing.T) {
	whole := append(bytes.Repeat([]byte("x"), 1024), sum(bytes.Repeat([]byte("x"), 1024))...)
	for name, c := range map[string]struct {
		data []byte
		ok   bool
	}{
		"whole":              {whole, true},
		"cut off":            {whole[:len(whole)-1], false},
		"a block is missing": {whole[512:], false},
		"altered":            {append([]byte("y"), whole[1:]...), false},
		"empty":              {nil, false},
	} {
		for _, piece := range []int{1, 7, 512, 4096} {
			k := checked{w: &bytes.Buffer{}, h: newHash()}
			for i := 0; i < len(c.data); i += piece {
				if err := k.write(c.data[i:min(len(c.data), i+piece)]); err != nil {
					t.Fatal(err)
				}
			}
			if err := k.end(); (err == nil) != c.ok {
				t.Errorf("%s in pieces of %d: %v", name, piece, err)
			}
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add([]byte{0x08, 0x01, 0x12, 0x01, 0x61})
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = fields(b) })
}

// certificates are a CA and one certificate that is server's and client's.
func certificates(t *testing.T) Credentials {
	t.Helper()
	dir := t.TempDir()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write := func(name, kind string, der []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	caKey, leafKey := key(), key()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "etcd"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP("127.0.0.1")},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &leafKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	return Credentials{CA: write("ca.crt", "CERTIFICATE", caDER), Cert: write("c.crt", "CERTIFICATE", leafDER), Key: write("c.key", "EC PRIVATE KEY", keyDER)}
}

func newHash() hash.Hash { return sha256.New() }

func sum(b []byte) []byte { s := sha256.Sum256(b); return s[:] }
