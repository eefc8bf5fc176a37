package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

// site is a directory with a configuration, and a Prism Central with one image.
type site struct {
	t      *testing.T
	dir    string
	prism  *httptest.Server
	config string
}

const wantedStream = `{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[
 {"architecture":"amd64","platform":"nutanix","version":"%s","attributes":{"location":"https://example.test/a.qcow2","sha256":"aa"}},
 {"architecture":"amd64","platform":"aws","region":"r","version":"9.6.1","attributes":{"image":"ami-1"}}]}`

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	s.prism = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "refit" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body)
		entities := ""
		if strings.Contains(string(body), "name==rhcos-9.6.1") {
			entities = `{"spec":{"name":"rhcos-9.6.1","resources":{"architecture":"X86_64"}},"status":{"state":"COMPLETE"},"metadata":{"uuid":"u-1"}}`
		}
		_, _ = fmt.Fprintf(w, `{"entities":[%s]}`, entities)
	}))
	t.Cleanup(s.prism.Close)
	s.write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.prism.Certificate().Raw})))
	s.write("username", "refit\n")
	s.write("password", "secret\n")
	s.write("stream.json", fmt.Sprintf(wantedStream, "9.6.1"))
	s.config = s.write("config.yaml", fmt.Sprintf(`stream: %[1]s/stream.json
clouds:
- name: hall-2
  region: hall-2
  image: rhcos-{version}
  credentials: %[1]s
  nutanix: {server: %[2]s, caFile: %[1]s/ca.pem}
`, s.dir, s.prism.URL))
	return s
}

func (s *site) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *site) run(args ...string) (string, error) {
	var out bytes.Buffer
	c := command()
	c.SetOut(&out)
	c.SetArgs(append(args, "--config", s.config))
	err := c.ExecuteContext(context.Background())
	return out.String(), err
}

func TestCheck(t *testing.T) {
	s := newSite(t)
	list := filepath.Join(s.dir, "list.json")
	out, err := s.run("check", "--output", list)
	if err != nil || !strings.Contains(out, "rhcos-9.6.1") || !strings.Contains(out, "present") {
		t.Fatal(out, err)
	}
	data, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	checkList(t, data)
	// An image that is missing makes the command fail.
	s.write("stream.json", fmt.Sprintf(wantedStream, "9.6.2"))
	if out, err = s.run("check"); !errors.Is(err, errMissing) || !strings.Contains(out, "missing") || !strings.Contains(out, "it is not uploaded to hall-2") {
		t.Error(out, err)
	}
	s.write("password", "wrong")
	if out, err = s.run("check"); !errors.Is(err, errMissing) || !strings.Contains(out, "401") {
		t.Error(out, err)
	}
}

// checkList reads a list as refit's controller does: the image has its name in the cloud and
// needs no report of an upload.
func checkList(t *testing.T, data []byte) {
	t.Helper()
	l, err := bootstream.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	i, err := l.Find(bootstream.Key{Architecture: "amd64", Platform: "nutanix", Region: "hall-2"})
	if err != nil || i.Attributes["id"] != "u-1" || i.Attributes["sha256"] != "aa" {
		t.Errorf("%+v %v", i, err)
	}
	if i, err = l.Find(bootstream.Key{Architecture: "amd64", Platform: "aws", Region: "r"}); err != nil || i.Attributes["image"] != "ami-1" || l.Release != "1.36.3" {
		t.Errorf("%+v %v", i, err)
	}
}

func TestServe(t *testing.T) {
	s := newSite(t)
	pair := s.prism.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate := s.write("tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	key := s.write("tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	p, err := newProgram(s.config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.serve(ctx, l, certificate, key) }()
	url := "https://" + l.Addr().String()
	get := func(path string) (int, []byte) {
		resp, err := s.prism.Client().Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, data
	}
	code, data := get(listPath)
	for end := time.Now().Add(30 * time.Second); code == http.StatusServiceUnavailable && time.Now().Before(end); code, data = get(listPath) {
		time.Sleep(10 * time.Millisecond)
	}
	if code != http.StatusOK {
		t.Fatal(code, string(data))
	}
	checkList(t, data)
	if code, _ := get("/config.yaml"); code != http.StatusNotFound {
		t.Error("another path is served:", code)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The configuration of the page is one that the program accepts.
func TestConfigurationOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/how-to/ask-clouds-for-boot-images.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\nstream:")
	text, _, ok := strings.Cut(text, "```")
	if !ok {
		t.Fatal("the page shows no configuration")
	}
	s := newSite(t)
	c, err := readConfiguration(s.write("config.yaml", "stream:"+text))
	if err != nil || len(c.Clouds) != 8 || !c.Clouds[0].Upload || c.Clouds[1].Upload {
		t.Errorf("%+v %v", c, err)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	s := newSite(t)
	data, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(string) string{
		"unknown field":            func(c string) string { return c + "  uploads: true\n" },
		"begin with https://":      func(c string) string { return strings.Replace(c, "stream: /", "stream: http://x/", 1) },
		"set exactly one of":       func(c string) string { return c + "  openstack: {cloud: x}\n" },
		"image is missing":         func(c string) string { return strings.Replace(c, "image:", "# image:", 1) },
		"files names no directory": func(c string) string { return c + "  upload: true\n" },
		"missing or there twice":   func(c string) string { return c + c[strings.Index(c, "- name"):] },
		"are both nutanix in region": func(c string) string {
			return c + strings.Replace(c[strings.Index(c, "- name"):], "name: hall-2", "name: hall-3", 1)
		},
		"takes no uploads": func(c string) string {
			return c[:strings.Index(c, "  nutanix")] + "  upload: true\n  aws: {region: x}\n"
		},
		"set aws.region":         func(c string) string { return c[:strings.Index(c, "  nutanix")] + "  aws: {}\n" },
		"set azure.subscription": func(c string) string { return c[:strings.Index(c, "  nutanix")] + "  azure: {location: x}\n" },
		"which refit-providers does not ask": func(c string) string {
			stack := s.write("cluster.yaml", "kind: AzureCluster\nmetadata: {name: c1}\nspec: {azureEnvironment: AzureStackCloud}\n")
			return c[:strings.Index(c, "  nutanix")] + "  azure: {azureCluster: " + stack + "}\n"
		},
		"set ibmcloud.region": func(c string) string { return c[:strings.Index(c, "  nutanix")] + "  ibmcloud: {}\n" },
		"not that of a workspace": func(c string) string {
			return c[:strings.Index(c, "  nutanix")] + "  powervs: {region: eu-de, crn: x}\n"
		},
		"streams name it": func(c string) string {
			return strings.Replace(c[:strings.Index(c, "  nutanix")]+"  ibmcloud: {region: eu-de}\n", "  region:", "  # region:", 1)
		},
		"clouds is empty": func(c string) string { return c[:strings.Index(c, "clouds")] },
	} {
		s.write("config.yaml", change(string(data)))
		if _, err := s.run("check"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
