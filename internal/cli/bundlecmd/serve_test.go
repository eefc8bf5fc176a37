package bundlecmd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// output is what a command that runs has printed.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// started is a registry that runs.
type started struct {
	url      string
	out, err output
	stop     func() int
}

// startRegistry runs `refit bundle serve` on a free port until stop.
func startRegistry(t *testing.T, args ...string) *started {
	t.Helper()
	s := &started{}
	ctx, cancel := context.WithCancel(t.Context())
	root := &cobra.Command{Use: "refit", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(New(&inputs.Access{}))
	root.SetOut(&s.out)
	root.SetErr(&s.err)
	root.SetArgs(append([]string{"bundle", "serve"}, args...))
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	s.stop = sync.OnceValue(func() int {
		cancel()
		return console.ExitCode(<-ended)
	})
	t.Cleanup(func() { s.stop() })
	line := regexp.MustCompile(`(?m)^Registry: (https?://\S+), `)
	for range 200 {
		if m := line.FindStringSubmatch(s.out.String()); m != nil && strings.Contains(s.err.String(), "registry started") {
			s.url = m[1]
			return s
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("serve %v ended: %v\n%s", args, err, s.err.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("serve %v does not start:\n%s%s", args, s.out.String(), s.err.String())
	return nil
}

func fetch(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err.Error()
	}
	return resp.StatusCode, string(body)
}

// The output names what was verified. The registry answers, logs and ends cleanly.
func TestServe(t *testing.T) {
	site(t)
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "b", "--key", "keys/refit.key", "oci:layout"))
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"nothing": {nil, []string{"Source: NOT VERIFIED", "Contents: not read yet; each blob is verified while it is served"}},
		"a key":   {[]string{"--pub", "keys/refit.pub"}, []string{"Source: verified, a given key signed it"}},
		"a digest and every byte": {[]string{"--digest", digest, "--check"},
			[]string{"Source: verified, the digest is the expected one", "Contents: every byte verified before the start"}},
		"a directory": {[]string{"--pub", "keys/refit.pub", "--digest", digest}, []string{"Source: verified, the digest is the expected one, and a given key signed it"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := "b"
			if name == "a directory" {
				path = "."
			}
			s := startRegistry(t, append([]string{path, "--listen", "127.0.0.1:0"}, c.args...)...)
			host := strings.TrimPrefix(s.url, "http://")
			for _, want := range append(c.says, "Bundle images 0.0.0 "+digest+": 1 image", `[host."http://`+host+`"]`, `location = "`+host+`/registry.example"`,
				"insecure = true", "crane pull "+host+"/registry.example/app:1 image.tar") {
				if !strings.Contains(s.out.String(), want) {
					t.Errorf("no %q in:\n%s", want, s.out.String())
				}
			}
			if status, body := fetch(t, http.DefaultClient, s.url+"/v2/app/tags/list?ns=registry.example"); status != 200 || body != `{"name":"registry.example/app","tags":["1"]}` {
				t.Errorf("%d %s", status, body)
			}
			if code := s.stop(); code != 0 {
				t.Errorf("exit %d", code)
			}
			for _, want := range []string{`msg="request answered" client=127.0.0.1:`, `method=GET path="/v2/app/tags/list?ns=registry.example" status=200`, `msg="registry stopped" served="1 request answered, 0 B sent"`} {
				if !strings.Contains(s.err.String(), want) {
					t.Errorf("no %q in the log:\n%s", want, s.err.String())
				}
			}
			if status, _ := fetch(t, http.DefaultClient, s.url+"/v2/"); status != 0 {
				t.Error("it still listens")
			}
		})
	}
}

// Refusals come before anything listens; each names its fix.
func TestServeRefuses(t *testing.T) {
	site(t)
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "b", "--key", "keys/refit.key", "oci:layout"))
	must(t, "keys", "generate", "--out", "other")
	zero := "sha256:" + strings.Repeat("0", 64)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good, err := os.ReadFile("b")
	if err != nil {
		t.Fatal(err)
	}
	good[len(good)-2000] ^= 1
	if err := os.WriteFile("spoiled", good, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"b", "--listen", ":0"}, console.ExitUsage, "--plain-http"},
		{[]string{"b", "--listen", "0.0.0.0:0"}, console.ExitUsage, "--tls-cert"},
		{[]string{"b", "--listen", "[::]:0"}, console.ExitUsage, "without TLS"},
		{[]string{"b", "--listen", "5000"}, console.ExitUsage, "an address and a port"},
		{[]string{"b", "--listen", taken.Addr().String()}, console.ExitUsage, "address already in use"},
		{[]string{"b", "--tls-cert", "x"}, console.ExitUsage, "belong together"},
		{[]string{"b", "--tls-cert", "b", "--tls-key", "b"}, console.ExitUsage, "--tls-cert b"},
		{[]string{"b", "--digest", "x"}, console.ExitUsage, "64 lower-case hex digits"},
		{[]string{"b", "--digest", zero}, console.ExitVerification, "expected " + zero},
		{[]string{"b", "--digest", digest, "--digest", zero}, console.ExitVerification, "no bundle with digest " + zero},
		{[]string{"b", "--pub", "other/refit.pub"}, console.ExitVerification, "expected a valid signature"},
		{[]string{"spoiled", "--check", "--listen", "127.0.0.1:0"}, console.ExitVerification, "blob"},
		{[]string{"absent"}, console.ExitUsage, "absent"},
		{nil, console.ExitUsage, "arg"},
	} {
		r := refit(t, append([]string{"bundle", "serve"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
			t.Errorf("%v: exit %d, %s%s", c.args, r.code, r.out, r.err)
		}
	}
}

// A damaged bundle is served without --check, and its damage is in the log and the exit code.
func TestServeDamaged(t *testing.T) {
	site(t)
	must(t, "bundle", "create", "--output", "b", "--unsigned", "oci:layout")
	b, err := os.ReadFile("b")
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-2000] ^= 1
	if err := os.WriteFile("b", b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startRegistry(t, "b", "--listen", "127.0.0.1:0")
	_, manifest := fetch(t, http.DefaultClient, s.url+"/v2/registry.example/app/manifests/1")
	failed := 0
	for _, d := range regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindAllString(manifest, -1) {
		if status, body := fetch(t, http.DefaultClient, s.url+"/v2/registry.example/app/blobs/"+d); status != 200 {
			failed++
			if status != 500 || !strings.Contains(body, d) {
				t.Errorf("%d %s", status, body)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d blobs failed of %s", failed, manifest)
	}
	if code := s.stop(); code != console.ExitVerification || !strings.Contains(s.err.String(), `msg="failed to read blob"`) {
		t.Errorf("exit %d\n%s", code, s.err.String())
	}
}

// With a certificate the registry speaks TLS only.
func TestServeTLS(t *testing.T) {
	site(t)
	must(t, "bundle", "create", "--output", "b", "--unsigned", "oci:layout")
	pool := certificate(t)
	s := startRegistry(t, "b", "--listen", "127.0.0.1:0", "--tls-cert", "tls.crt", "--tls-key", "tls.key")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	if status, body := fetch(t, client, s.url+"/v2/registry.example/app/tags/list"); status != 200 || !strings.Contains(body, `"1"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := fetch(t, http.DefaultClient, strings.Replace(s.url, "https", "http", 1)+"/v2/"); status == 200 {
		t.Error("it answers without TLS")
	}
	if strings.Contains(s.out.String(), "insecure") || !strings.Contains(s.out.String(), `[host."https://`) {
		t.Error(s.out.String())
	}
}

// certificate writes tls.crt and tls.key for 127.0.0.1.
func certificate(t *testing.T) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, b := range map[string][]byte{"tls.crt": crt, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(crt)
	return pool
}

// All bundles of a directory or medium are served at one address.
func TestServeSeveral(t *testing.T) {
	site(t)
	if err := os.Mkdir("stick", 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, "bundle", "create", "--output", "stick/a", "--key", "keys/refit.key", "oci:layout")
	must(t, "bundle", "create", "--output", "stick/b", "--key", "keys/refit.key", "--version", "2.0.0", "bundle:stick/a", "registry.example/app:2=oci:layout")
	s := startRegistry(t, "stick", "--listen", "127.0.0.1:0", "--pub", "keys/refit.pub")
	if n := strings.Count(s.out.String(), "\nBundle ") + 1; n != 2 {
		t.Errorf("%d bundles:\n%s", n, s.out.String())
	}
	if status, body := fetch(t, http.DefaultClient, s.url+"/v2/registry.example/app/tags/list"); status != 200 || body != `{"name":"registry.example/app","tags":["1","2"]}` {
		t.Errorf("%d %s", status, body)
	}
	must(t, "bundle", "create", "--output", "stick/c", "--unsigned", "oci:layout")
	if r := refit(t, "bundle", "serve", "stick", "--pub", "keys/refit.pub"); r.code != console.ExitVerification {
		t.Errorf("with an unsigned bundle next to them: exit %d, %s", r.code, r.err)
	}
}
