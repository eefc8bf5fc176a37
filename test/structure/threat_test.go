package structure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/model"
)

const threatPage = "../../docs/explanation/threat-model.md"

// listener is a socket on which a process of refit's answers.
type listener struct {
	who      string
	port     int // 0: a socket or a port that is chosen
	bound    string
	protocol string
	callers  string
	// source is the file that opens it, and what must be in it.
	source, must string
}

var listeners = []listener{
	{"agent: chunks", model.PortPeers, "the node's address", "HTTPS, TLS 1.3", "keys of spec.peers", "internal/agent/peertransfer/serve.go", "id.Listen("},
	{"agent: mirror for CRI-O, while images are loaded", 0, "127.0.0.1, 512 to 1023", "HTTP", "clients with the secret path", "internal/agent/host/crio/mirror.go", "listenMirror()"},
	{"agent: page of the node, off by default", model.PortNodeStatus, "`statusPage`", "HTTP", "every client, without messages", "internal/agent/statusreport/page.go", "func ServePage("},
	{"controller: health", model.PortHealth, "127.0.0.1", "HTTP", "all processes of the node", "cmd/refit-controller/main.go", "model.PortHealth"},
	{"controller: metrics", model.PortMetrics, "all addresses of its node", "HTTPS", "users who may get /metrics, and tokens for logs of nodes", "config/controller/deployment.yaml", "-metrics-address=:18742"},
	{"controller: Cluster API extension, off by default", model.PortClusterAPI, "`-cluster-api-address`", "HTTPS", "client certificates", "cmd/refit-controller/main.go", `"cluster-api-address", ""`},
	{"controller: first-boot configuration, off by default", model.PortJoins, "`-join-address`", "HTTPS", "tokens of machines", "cmd/refit-controller/main.go", `"join-address", ""`},
	{"controller: status page, off by default", model.PortStatus, "`-status-address`", "HTTPS, or HTTP on loopback", "tokens with the right to a path", "cmd/refit-controller/main.go", `"status-address", ""`},
	{"controller: Go's profiler, off by default", 0, "`-profile-address`", "HTTP", "every client", "cmd/refit-controller/main.go", `"profile-address", "0"`},
}

// The tables of the threat model are those of the program and its manifests.
func TestThreatModel(t *testing.T) {
	page, err := os.ReadFile(threatPage)
	if err != nil {
		t.Fatal(err)
	}
	want := string(page)
	for name, text := range map[string]string{"listeners": listenerTable(t), "identities": identityTable(t)} {
		part := regexp.MustCompile(`(?s)<!-- generated: ` + name + ` -->\n.*?<!-- end -->`)
		if !part.MatchString(want) {
			t.Fatalf("%s has no place for %s", threatPage, name)
		}
		want = part.ReplaceAllLiteralString(want, "<!-- generated: "+name+" -->\n"+text+"<!-- end -->")
	}
	if *update {
		if err := os.WriteFile(threatPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(page) {
		t.Errorf("%s is not what the program does: go test ./test/structure -run ThreatModel -update", threatPage)
	}
}

func listenerTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("## Listeners\n| who | port | bound to | protocol | answers |\n| --- | --- | --- | --- | --- |\n")
	for _, l := range listeners {
		text, err := os.ReadFile("../../" + l.source)
		if err != nil || !strings.Contains(string(text), l.must) {
			t.Errorf("%s: %s does not have %s: %v", l.who, l.source, l.must, err)
		}
		port := "any"
		if l.port > 0 {
			port = fmt.Sprint(l.port)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", l.who, port, l.bound, l.protocol, l.callers)
	}
	return b.String()
}

// role is what a ClusterRole or Role of the manifests permits.
type role struct {
	TypeName string `json:"kind"`
	rbacv1.ClusterRole
	Subjects []rbacv1.Subject `json:"subjects"`
	RoleRef  rbacv1.RoleRef   `json:"roleRef"`
}

func identityTable(t *testing.T) string {
	t.Helper()
	rules, bound := map[string][]rbacv1.PolicyRule{}, map[string][]string{}
	for _, r := range manifests(t) {
		key := r.TypeName + "/" + r.Namespace + "/" + r.Name
		switch r.TypeName {
		case "ClusterRole", "Role":
			rules[key] = append(rules[key], r.Rules...)
		case "ClusterRoleBinding", "RoleBinding":
			ns := r.Namespace
			if r.RoleRef.Kind == "ClusterRole" {
				ns = ""
			}
			for _, s := range r.Subjects {
				to := r.RoleRef.Kind + "/" + ns + "/" + r.RoleRef.Name
				bound[to] = append(bound[to], s.Kind+" "+s.Name)
			}
		}
	}
	var rows []string
	for key, all := range rules {
		kind, rest, _ := strings.Cut(key, "/")
		ns, name, _ := strings.Cut(rest, "/")
		where := "the cluster"
		if kind == "Role" {
			where = ns
		}
		who := "bound by the administrator"
		if len(bound[key]) > 0 {
			slices.Sort(bound[key])
			who = strings.Join(slices.Compact(bound[key]), ", ")
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", name, who, where, writes(all)))
	}
	slices.Sort(rows)
	return "## Identities\nWhat each role may write, or read of Secrets; reading anything else is left out. Admission policies (`config/admission`) narrow it further.\n\n" +
		"| role | bound to | in | may write |\n| --- | --- | --- | --- |\n" + strings.Join(rows, "")
}

// writes lists the verbs that change something, and every right to Secrets.
func writes(rules []rbacv1.PolicyRule) string {
	var out []string
	for _, r := range rules {
		for _, res := range r.Resources {
			var verbs []string
			for _, v := range r.Verbs {
				if !slices.Contains([]string{"get", "list", "watch"}, v) || res == "secrets" {
					verbs = append(verbs, v)
				}
			}
			if len(verbs) == 0 {
				continue
			}
			named := ""
			if len(r.ResourceNames) > 0 {
				named = " " + strings.Join(r.ResourceNames, " ")
			}
			out = append(out, "`"+res+named+": "+strings.Join(verbs, ", ")+"`")
		}
	}
	if len(out) == 0 {
		return "nothing"
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "; ")
}

func manifests(t *testing.T) (out []role) {
	t.Helper()
	err := filepath.WalkDir("../../config", func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" || strings.Contains(path, "/crd/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
			doc, err := r.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if !regexp.MustCompile(`(?m)^kind: (Cluster)?Role(Binding)?$`).Match(doc) {
				continue
			}
			var one role
			if err := yaml.Unmarshal(doc, &one); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			out = append(out, one)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
