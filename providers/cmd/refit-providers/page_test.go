package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud/cloudtest"
)

const cloudsPage = "ask-clouds-for-boot-images.md"

// TestCommandsOfThePage types the commands of docs/how-to/ask-clouds-for-boot-images.md with the
// program, against a simulated vCenter and a server with the API of Prism Central. The first
// check finds an image missing, the second uploads it, and the list is served.
//
// Replaced are only names that each reader replaces too: the configuration has two clouds of the
// test, and the port is a free one.
func TestCommandsOfThePage(t *testing.T) {
	s := newSite(t)
	s.addVCenter()
	s.writePair()
	typed := map[int]bool{}
	lines := s.block(2, typed)
	if len(lines) != 2 {
		t.Fatalf("the page has other checks: %q", lines)
	}
	if out, code := s.types(lines[0]); code != 1 || !strings.Contains(out, "missing") || !strings.Contains(out, "it is not uploaded to hall-1") {
		t.Errorf("$ %s: exit code %d, want 1\n%s", lines[0], code, out)
	}
	if out, code := s.types(lines[1]); code != 0 || strings.Contains(out, "missing") {
		t.Errorf("$ %s: exit code %d, want 0\n%s", lines[1], code, out)
	}
	list, err := os.ReadFile(filepath.Join(s.dir, "list.json"))
	if err != nil {
		t.Fatal(err)
	}
	s.checkBoth(list)
	s.checkBoth(s.served(s.block(3, typed)[0]))
	s.compareTable(typed)
}

// addVCenter adds a vCenter without the image, and the file to upload.
func (s *site) addVCenter() {
	s.t.Helper()
	server, ca, user := cloudtest.VCenter(s.t)
	ova := cloudtest.OVA(s.t, "disk.vmdk", 100_000)
	for _, dir := range []string{"files", "hall-1"} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	password, _ := user.Password()
	s.write("hall-1/username", user.Username())
	s.write("hall-1/password", password)
	s.write("files/rhcos.ova", string(ova))
	image := fmt.Sprintf(`,{"architecture":"amd64","platform":"vsphere","version":"9.6.1","attributes":{"location":"https://example.test/rhcos.ova","sha256":"%x"}}]}`, sha256.Sum256(ova))
	s.write("stream.json", strings.TrimSuffix(fmt.Sprintf(wantedStream, "9.6.1"), "]}")+image)
	config, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("config.yaml", fmt.Sprintf(`files: %[1]s/files
%[2]s- name: hall-1
  image: /DC0/vm/rhcos-{version}
  upload: true
  credentials: %[1]s/hall-1
  vsphere: {server: %[3]s, caFile: %[4]s, pool: %[5]s}
`, s.dir, config, server, ca, cloudtest.Pool))
}

// writePair writes the certificate of the fixture and its key.
func (s *site) writePair() {
	s.t.Helper()
	pair := s.prism.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	s.write("tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

// block is a block of commands of the page, from 1.
func (s *site) block(n int, typed map[int]bool) []string {
	s.t.Helper()
	page, err := os.ReadFile(filepath.Join("../../../docs/how-to", cloudsPage))
	if err != nil {
		s.t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```sh\n")
	if n >= len(blocks) {
		s.t.Fatalf("the page has %d blocks of commands", len(blocks)-1)
	}
	typed[n] = true
	text, _, _ := strings.Cut(blocks[n], "```")
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// command is a line of the page for the shell of a reader who has the program.
func (s *site) command(line string) *exec.Cmd {
	s.t.Helper()
	program := filepath.Join(s.dir, "refit-providers")
	if _, err := os.Stat(program); err != nil {
		if out, err := exec.CommandContext(s.t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
	}
	c := exec.CommandContext(s.t.Context(), "bash", "-c", "exec "+line)
	c.Dir, c.Env = s.dir, append(os.Environ(), "PATH="+s.dir+":"+os.Getenv("PATH"))
	return c
}

func (s *site) types(line string) (out string, code int) {
	s.t.Helper()
	c := s.command(line)
	data, _ := c.CombinedOutput() // the exit code is compared
	return string(data), c.ProcessState.ExitCode()
}

// served is the list that the program serves until it is interrupted.
func (s *site) served(line string) []byte {
	s.t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	c := s.command(line + " --listen " + address)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}}}
	client.Transport.(*http.Transport).TLSClientConfig.RootCAs.AddCert(s.prism.Certificate())
	var list []byte
	for end := time.Now().Add(time.Minute); list == nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		resp, err := client.Get("https://" + address + listPath)
		if err != nil {
			continue
		}
		if data, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
			list = data
		}
		resp.Body.Close()
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Error(err)
	}
	if err := c.Wait(); err != nil {
		s.t.Errorf("$ %s: %v after Ctrl-C\n%s", line, err, out.String())
	}
	return list
}

// checkBoth reads a list: both clouds have the image.
func (s *site) checkBoth(data []byte) {
	s.t.Helper()
	checkList(s.t, data)
	l, err := bootstream.Parse(data)
	if err != nil {
		s.t.Fatal(err)
	}
	i, err := l.Find(bootstream.Key{Architecture: "amd64", Platform: "vsphere"})
	if err != nil || i.Attributes["template"] != "/DC0/vm/rhcos-9.6.1" {
		s.t.Errorf("%+v %v", i, err)
	}
}

// compareTable compares the typed blocks with the table of all pages.
func (s *site) compareTable(typed map[int]bool) {
	s.t.Helper()
	text, err := os.ReadFile("../../../test/e2e/testdata/howtos.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	var rows map[string]struct{ Blocks []int }
	if err := yaml.Unmarshal(text, &rows); err != nil {
		s.t.Fatal(err)
	}
	want := rows[cloudsPage].Blocks
	if len(want) != len(typed) || slices.ContainsFunc(want, func(n int) bool { return !typed[n] }) {
		s.t.Errorf("typed blocks %v, the table has %v", typed, want)
	}
}
