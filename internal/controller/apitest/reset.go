package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// patience bounds every wait for the server here; a loaded machine takes seconds.
	patience = 2 * time.Minute
	// txnOps is the most operations that etcd takes in one transaction.
	txnOps = 100
	root   = "/registry/"
)

// serversOwn are the keys that the API server writes by itself at any time.
var serversOwn = []string{
	"apiregistration.k8s.io/", "configmaps/kube-system/extension-apiserver-authentication", "configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking",
	"endpointslices/default/kubernetes", "flowschemas/", "ipaddresses/", "leases/kube-system/apiserver-", "masterleases/", "namespaces/default", "namespaces/kube-",
	"prioritylevelconfigurations/", "ranges/", "servicecidrs/", "services/endpoints/default/kubernetes", "services/specs/default/kubernetes",
}

// rules are the keys of objects that the API server compiles for itself. It does so some time
// after a change, so that a server whose rules changed is not used again.
var rules = []string{
	"apiextensions.k8s.io/customresourcedefinitions/", "mutatingadmissionpolicies/", "mutatingadmissionpolicybindings/", "mutatingwebhookconfigurations/",
	"validatingadmissionpolicies/", "validatingadmissionpolicybindings/", "validatingwebhookconfigurations/",
}

var errRulesChanged = errors.New("the test changed kinds, policies or webhooks")

// entry is a value in etcd and the revision of its last change.
type entry struct {
	value    []byte
	revision string
}

// settle waits until the API server has written what it writes at its start, and returns all
// that etcd has.
func (s *server) settle() (map[string]entry, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	last, err := s.read(ctx, false)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("etcd changes without end: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
		var now map[string]entry
		if now, err = s.read(ctx, false); err == nil && maps.EqualFunc(last, now, func(a, b entry) bool { return a.revision == b.revision }) {
			return now, nil
		}
		last = now
	}
	return nil, err
}

// reset deletes from etcd what is not of the installation and restores what is. The API server
// watches etcd: its caches and authorizers follow. reset returns when they did.
func (s *server) reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now, err := s.read(ctx, true)
	if err != nil {
		return err
	}
	var ops []map[string]any
	changed := func(key string, op map[string]any) {
		ops = append(ops, op)
		if hasPrefix(key, rules) {
			err = fmt.Errorf("%s: %w", key, errRulesChanged)
		}
	}
	for key := range now {
		if _, ok := s.installed[key]; !ok {
			changed(key, map[string]any{"request_delete_range": map[string]any{"key": []byte(key)}})
		}
	}
	for key, e := range s.installed {
		if now[key].revision != e.revision {
			changed(key, map[string]any{"request_put": map[string]any{"key": []byte(key), "value": e.value}})
		}
	}
	if err != nil {
		return err
	}
	for some := range slices.Chunk(ops, txnOps) {
		if err := s.etcd(ctx, "txn", map[string]any{"success": some}, nil); err != nil {
			return err
		}
	}
	if s.installed, err = s.refreshed(ctx); err != nil {
		return err
	}
	return s.awaitAuthorizer(ctx)
}

// refreshed returns the installation with the revisions of now.
func (s *server) refreshed(ctx context.Context) (map[string]entry, error) {
	now, err := s.read(ctx, true)
	if err != nil {
		return nil, err
	}
	for key := range now {
		e, ok := s.installed[key]
		if !ok {
			return nil, fmt.Errorf("%s was written meanwhile", key)
		}
		now[key] = entry{e.value, now[key].revision}
	}
	return now, nil
}

// awaitAuthorizer binds a user to a role and waits until the server knows: it has then seen all
// older changes of rights too.
func (s *server) awaitAuthorizer(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(s.cfg)
	if err != nil {
		return err
	}
	const name = "apitest-reset"
	_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := awaitRight(ctx, c, name, true); err != nil {
		return err
	}
	if err := c.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return awaitRight(ctx, c, name, false)
}

func awaitRight(ctx context.Context, c kubernetes.Interface, user string, want bool) error {
	for {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "nodes"}}}
		got, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil || got.Status.Allowed == want {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the authorizer does not follow: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// read returns what etcd has below the API server's root, except what the server writes by
// itself.
func (s *server) read(ctx context.Context, keysOnly bool) (map[string]entry, error) {
	var answer struct {
		Kvs []struct {
			Key, Value  []byte
			ModRevision string `json:"mod_revision"`
		}
	}
	err := s.etcd(ctx, "range", map[string]any{"key": []byte(root), "range_end": []byte("/registry0"), "keys_only": keysOnly}, &answer)
	out := map[string]entry{}
	for _, kv := range answer.Kvs {
		if key := string(kv.Key); !hasPrefix(key, serversOwn) {
			out[key] = entry{kv.Value, kv.ModRevision}
		}
	}
	return out, err
}

func hasPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, root+p) })
}

// etcd calls the JSON form of etcd's API.
func (s *server) etcd(ctx context.Context, call string, in map[string]any, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	url := s.env.ControlPlane.Etcd.URL.JoinPath("v3/kv", call).String()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd answers %s to %s: %s", resp.Status, call, answer)
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}
