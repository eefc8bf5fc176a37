package apitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lendOn makes this test program a lender: its value is the path of the socket. test/run.sh starts one.
const lendOn = "REFIT_LEND_API_SERVERS"

func TestMain(m *testing.M) {
	if socket := os.Getenv(lendOn); socket != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := Lend(ctx, socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	_ = os.Unsetenv(LenderSocket) // these tests are about servers of their own
	os.Exit(Main(m))
}

const role = "refit-controller"

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The second test gets the server of the first, as it was installed. What the first one added
// is gone, what it changed is restored, and its rights and its client have ended.
func TestTheNextTestSeesTheInstallation(t *testing.T) {
	var first *rest.Config
	var installed rbacv1.ClusterRole
	t.Run("first", func(t *testing.T) {
		first = Start(t)
		c := newClient(t, first)
		get(t, c, role, &installed)
		for _, o := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
			pinnedImageSet(),
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jo"}}},
		} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		api, err := kubernetes.NewForConfig(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := awaitRight(t.Context(), api, "jo", true); err != nil {
			t.Fatal(err)
		}
		var changed rbacv1.ClusterRole
		get(t, c, role, &changed)
		changed.Rules = nil
		if err := c.Update(t.Context(), &changed); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("second", func(t *testing.T) {
		cfg := Start(t)
		if cfg.Host != first.Host {
			t.Fatal("the second test has a server of its own")
		}
		c := newClient(t, cfg)
		for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, pinnedImageSet(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}}} {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				t.Errorf("%T %s of the first test: %v, want not found", o, o.GetName(), err)
			}
		}
		var now, view rbacv1.ClusterRole
		get(t, c, role, &now)
		get(t, c, "view", &view)
		if !reflect.DeepEqual(now.Rules, installed.Rules) || now.UID != installed.UID {
			t.Errorf("rules of %s:\n%v\nwant those of the installation:\n%v", role, now.Rules, installed.Rules)
		}
		if err := newClient(t, As(cfg, "jo")).Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); !apierrors.IsForbidden(err) {
			t.Errorf("a user with rights of the first test: %v, want forbidden", err)
		}
		if err := newClient(t, first).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late"}}); !errors.Is(err, errLeaseOver) {
			t.Errorf("a write of the first test: %v, want %v", err, errLeaseOver)
		}
		if err := c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
			t.Error(err)
		}
	})
}

// A server whose kinds changed, or whose test failed, is not used again.
func TestOtherServersStop(t *testing.T) {
	if testing.Short() {
		t.Skip("starts API servers")
	}
	var used []string
	t.Run("changes a kind", func(t *testing.T) {
		cfg := Start(t)
		used = append(used, cfg.Host)
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName("pinnedimagesets.refit.dev")
		if err := newClient(t, cfg).Delete(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("fails", func(t *testing.T) {
		cfg := Start(failing{t})
		used = append(used, cfg.Host)
	})
	if used[0] == used[1] {
		t.Error("a server without a kind of refit was used again")
	}
	for _, s := range ours.idle {
		if s.cfg.Host == used[0] || s.cfg.Host == used[1] {
			t.Errorf("%s is idle, want it stopped", s.cfg.Host)
		}
	}
}

// failing is a test that failed.
type failing struct{ testing.TB }

func (failing) Failed() bool { return true }

func pinnedImageSet() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"groups": []any{}}}}
	o.SetAPIVersion("refit.dev/v1alpha1")
	o.SetKind("PinnedImageSet")
	o.SetName("p")
	return o
}

func get(t *testing.T, c client.Client, name string, o client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
		t.Fatal(err)
	}
}
