package certs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	names = []string{"refit-cluster-api.refit-system.svc", "127.0.0.1"}
)

const day = 24 * time.Hour

func leafOf(t testing.TB, data map[string][]byte) *x509.Certificate {
	t.Helper()
	b, _ := pem.Decode(data[KeyCert])
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func trusts(t testing.TB, bundle []byte, leaf *x509.Certificate, now time.Time) error {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle is no PEM")
	}
	for _, n := range names {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: n, CurrentTime: now}); err != nil {
			return err
		}
	}
	return nil
}

func step(t testing.TB, data map[string][]byte, now time.Time) (map[string][]byte, bool) {
	t.Helper()
	next, changed, err := Next(data, names, now)
	if err != nil {
		t.Fatal(err)
	}
	if !changed {
		return next, false
	}
	if again, more, _ := Next(next, names, now); more || !maps.EqualFunc(again, next, slices.Equal[[]byte]) {
		t.Fatal("applied twice is not the same as once")
	}
	return next, changed
}

// Five years with a check every other day: a caller that fetched the
// bundle within the overlap trusts the server, and the CA itself was rotated.
func TestACallerThatFollowsAlwaysTrusts(t *testing.T) {
	t.Parallel()
	data, _ := step(t, nil, start)
	first := string(data[signerCert])
	bundles := [][]byte{data[KeyBundle]} // of the last days
	writes, signers := 0, map[string]bool{}
	for n := 2; n < 5*365; n += 2 {
		now := start.Add(time.Duration(n) * day)
		next, changed := step(t, data, now)
		if changed {
			writes++
		}
		data = next
		signers[string(data[signerCert])] = true
		bundles = append(bundles, data[KeyBundle])
		if len(bundles) > int(Overlap/day)/2 {
			bundles = bundles[1:]
		}
		if err := trusts(t, bundles[0], leafOf(t, data), now); err != nil {
			t.Fatalf("day %d: a bundle fetched %d days ago: %v", n, 2*(len(bundles)-1), err)
		}
	}
	if len(signers) < 4 || string(data[signerCert]) == first {
		t.Errorf("the CA was rotated %d times in five years", len(signers)-1)
	}
	if writes > 120 {
		t.Errorf("%d writes in five years", writes)
	}
}

func TestWhatIsDueIsMade(t *testing.T) {
	t.Parallel()
	base, _ := step(t, nil, start)
	other, _ := step(t, nil, start)
	cases := map[string]struct {
		change func(map[string][]byte)
		at     time.Time
		names  []string
		// which parts differ afterwards
		leaf, signer bool
	}{
		"nothing, the next day":                    {nil, start.Add(day), names, false, false},
		"a certificate in the last third":          {nil, start.Add(21 * day), names, true, false},
		"another name":                             {nil, start, []string{"other.svc"}, true, false},
		"the same names in another order":          {nil, start, []string{names[1], names[0]}, false, false},
		"a key that is not the certificate's":      {func(d map[string][]byte) { d[KeyKey] = other[KeyKey] }, start, names, true, false},
		"a certificate of another CA":              {func(d map[string][]byte) { d[KeyCert], d[KeyKey] = other[KeyCert], other[KeyKey] }, start, names, true, false},
		"a CA with an invalid key":                 {func(d map[string][]byte) { d[signerKey] = []byte("x") }, start, names, true, true},
		"a CA that has expired while all were off": {nil, start.Add(caLife + day), names, true, true},
		"a clock that was ahead when all was made": {nil, start.Add(-day), names, true, true},
		"an emptied bundle is restored":            {func(d map[string][]byte) { d[KeyBundle] = nil }, start, names, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := maps.Clone(base)
			if tc.change != nil {
				tc.change(data)
			}
			got, _, err := Next(data, tc.names, tc.at)
			if err != nil {
				t.Fatal(err)
			}
			if leaf := string(got[KeyCert]) != string(base[KeyCert]); leaf != tc.leaf {
				t.Errorf("the certificate is new: %v, want %v", leaf, tc.leaf)
			}
			if signer := string(got[signerCert]) != string(base[signerCert]); signer != tc.signer {
				t.Errorf("the CA is new: %v, want %v", signer, tc.signer)
			}
			if len(tc.names) == 2 {
				if err := trusts(t, got[KeyBundle], leafOf(t, got), tc.at); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if _, _, err := Next(nil, nil, start); err == nil {
		t.Error("a certificate without a name is an error")
	}
}

// Property: for every content of the Secret the result can be served.
func TestAnySecretEndsInOneThatServes(t *testing.T) {
	t.Parallel()
	good, _ := step(t, nil, start)
	rapid.Check(t, func(rt *rapid.T) {
		data := map[string][]byte{}
		for _, k := range []string{KeyBundle, KeyCert, KeyKey, signerCert, signerKey, nextCert, nextKey} {
			switch rapid.IntRange(0, 2).Draw(rt, k) {
			case 0:
				data[k] = good[k]
			case 1:
				data[k] = rapid.SliceOf(rapid.Byte()).Draw(rt, k+" bytes")
			}
		}
		now := start.Add(time.Duration(rapid.OneOf(rapid.IntRange(-1000, 3000), rapid.IntRange(700, 731)).Draw(rt, "day")) * day)
		got, _ := step(t, data, now)
		if err := trusts(t, got[KeyBundle], leafOf(t, got), now); err != nil {
			rt.Fatal(err)
		}
	})
}

func fakeClient(t *testing.T, funcs interceptor.Funcs) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(s).WithInterceptorFuncs(funcs).Build()
}

// Two replicas that start at once: one writes, both serve that.
func TestTwoReplicasServeOneCA(t *testing.T) {
	t.Parallel()
	c := fakeClient(t, interceptor.Funcs{})
	key := client.ObjectKey{Namespace: "refit-system", Name: "refit-cluster-api"}
	now := start
	a := &Keeper{Client: c, Secret: key, Names: names, Now: func() time.Time { return now }}
	raced := false
	b := &Keeper{Client: fakeOver(c, func() { // a is faster between b's look and b's write
		if !raced {
			raced = true
			if err := a.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}), Secret: key, Names: names, Now: a.Now}
	if _, err := b.Certificate(nil); err == nil {
		t.Error("before the first look there is nothing to serve")
	}
	if err := b.Sync(t.Context()); !apierrors.IsAlreadyExists(err) || b.Ready() {
		t.Fatalf("the slower one loses: %v", err)
	}
	if err := b.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	ca, _ := a.Certificate(nil)
	cb, _ := b.Certificate(nil)
	if string(ca.Certificate[0]) != string(cb.Certificate[0]) {
		t.Error("two replicas serve two certificates")
	}
	now = start.Add(25 * day)
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	ra, _ := a.Certificate(nil)
	rb, _ := b.Certificate(nil)
	if string(ra.Certificate[0]) == string(ca.Certificate[0]) || string(ra.Certificate[0]) != string(rb.Certificate[0]) {
		t.Error("a rotated certificate is served by both")
	}
	var s corev1.Secret
	if err := c.Get(t.Context(), key, &s); err != nil {
		t.Fatal(err)
	}
	if err := trusts(t, s.Data[KeyBundle], leafOf(t, s.Data), now); err != nil {
		t.Error(err)
	}
}

// An unavailable API server removes no certificate.
func TestTheServedCertificateStays(t *testing.T) {
	t.Parallel()
	away := false
	c := fakeClient(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if away {
			return errors.New("connection refused")
		}
		return c.Get(ctx, k, o, opts...)
	}})
	k := &Keeper{Client: c, Secret: client.ObjectKey{Namespace: "n", Name: "s"}, Names: names, Now: func() time.Time { return start }}
	if err := k.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	away = true
	if err := k.Sync(t.Context()); err == nil || !k.Ready() {
		t.Errorf("the look fails (%v), the certificate stays (%v)", err, k.Ready())
	}
}

// fakeOver runs before a create.
func fakeOver(c client.Client, before func()) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		before()
		return c.Create(ctx, o, opts...)
	}})
}
