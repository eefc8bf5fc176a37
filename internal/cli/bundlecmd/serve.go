package bundlecmd

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundleserver"
	"github.com/refit-dev/refit/internal/text"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	digests, pubs    []string
	listen           string
	tlsCert, tlsKey  string
	plainHTTP, check bool
}

func newServe() *cobra.Command {
	var o serveOptions
	c := &cobra.Command{
		Use: "serve PATH...", Short: "Serve the images of bundles as a read-only registry, from where they are",
		Long: `Serve the images of bundles as a registry that can only be pulled from, until the command is interrupted. Nothing is
unpacked or copied. The command prints how containerd, CRI-O, Docker, skopeo and crane use it. If a path has several
bundles, the command serves all of them.

The command verifies the digest or the signature of each bundle first, if you name a digest or a key. It verifies each
blob while it serves it. A damaged blob ends as an error for the client, never as a complete wrong body. --check reads
and verifies every byte before the registry starts.

The registry asks for no password. Other machines get it over TLS, or with --plain-http.
` + mediaHelp,
		Example: "  refit bundle serve k8s.bundle --pub refit.pub\n  refit bundle serve /dev/sdb --listen 10.0.0.5:5000 --tls-cert tls.crt --tls-key tls.key",
		Args:    console.Args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, a []string) error {
			return o.serve(c, a)
		},
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:5000", "address and port of the registry; port 0 takes a free one")
	f.StringArrayVar(&o.pubs, "pub", nil, "public key (refit.pub); may be repeated, one valid signature of each bundle is enough")
	f.StringArrayVar(&o.digests, "digest", nil, "digest of a bundle; may be repeated")
	f.BoolVar(&o.check, "check", false, "read and verify every byte of the bundles before the registry starts")
	f.StringVar(&o.tlsCert, "tls-cert", "", "certificate of the registry (PEM), with those that issued it")
	f.StringVar(&o.tlsKey, "tls-key", "", "private key of the certificate (PEM)")
	f.BoolVar(&o.plainHTTP, "plain-http", false, "serve other machines without TLS")
	return c
}

func (o serveOptions) serve(c *cobra.Command, paths []string) error {
	for _, d := range o.digests {
		if !bundle.ValidDigest(d) {
			return console.UsageErrorf("--digest %q: want sha256: and 64 lower-case hex digits", d)
		}
	}
	conf, err := o.tlsConfig()
	if err != nil {
		return err
	}
	address, err := o.address(c.Context(), conf != nil)
	if err != nil {
		return err
	}
	files, err := openAll(paths)
	defer closeAll(files)
	if err == nil {
		err = o.verify(c, files)
	}
	if err != nil {
		return withExitCode(err)
	}
	return o.run(c, files, address, conf)
}

// run serves bundles until the context ends.
func (o serveOptions) run(c *cobra.Command, files []*bundlereader.File, address string, conf *tls.Config) error {
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	server, err := newServer(c.Context(), log, files)
	if err != nil {
		return err
	}
	if o.check {
		server.SetVerified()
	}
	l, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", address)
	if err != nil {
		return console.UsageError(fmt.Errorf("--listen %s: %w; choose another port with --listen", o.listen, err))
	}
	defer l.Close()
	if err := o.usage(c.OutOrStdout(), server, files, l.Addr(), conf != nil); err != nil {
		return err
	}
	log.Info("registry started", "address", l.Addr().String())
	err = server.Serve(c.Context(), l, conf)
	log.Info("registry stopped", "served", server.Summary())
	if n := server.Damaged(); err == nil && n > 0 {
		return console.WithExit(console.ExitVerification, fmt.Errorf("%s of damaged blobs refused; the log above names them. Copy the bundle again", text.Count(int(n), "read")))
	}
	return err
}

// newServer reads the manifests of the bundles.
func newServer(ctx context.Context, log *slog.Logger, files []*bundlereader.File) (*bundleserver.Server, error) {
	server, err := bundleserver.New(ctx, log, files...)
	var conflict *bundleserver.ConflictError
	if errors.As(err, &conflict) {
		return nil, console.UsageError(err)
	}
	return server, withExitCode(err)
}

// tlsConfig returns the certificate of the registry, nil for none.
func (o serveOptions) tlsConfig() (*tls.Config, error) {
	if (o.tlsCert == "") != (o.tlsKey == "") {
		return nil, console.UsageErrorf("--tls-cert and --tls-key belong together: name both")
	}
	if o.tlsCert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--tls-cert %s, --tls-key %s: %w", o.tlsCert, o.tlsKey, err))
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// address returns where to listen. It resolves a name once, so that the address that was found
// to be of this machine only is the one that is used.
func (o serveOptions) address(ctx context.Context, secure bool) (string, error) {
	host, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return "", console.UsageErrorf("--listen %q: write an address and a port, for example 127.0.0.1:5000", o.listen)
	}
	loopback := false
	if host != "" {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return "", console.UsageError(fmt.Errorf("--listen %s: %w", o.listen, err))
		}
		host, loopback = ips[0].Unmap().String(), ips[0].Unmap().IsLoopback()
	}
	if !loopback && !secure && !o.plainHTTP {
		return "", console.UsageErrorf("--listen %s: other machines could reach the registry without TLS; use --tls-cert and --tls-key, or --plain-http if the network is trusted", o.listen)
	}
	return net.JoinHostPort(host, port), nil
}

// openAll opens the bundles at paths, several of one medium too. Close what it returns, also with
// an error.
func openAll(paths []string) (files []*bundlereader.File, err error) {
	for _, path := range paths {
		f, err := bundlereader.OpenPath(path)
		var several *bundlereader.SeveralError
		if errors.As(err, &several) {
			more, err := openFound(several.Found)
			files = append(files, more...)
			if err != nil {
				return files, err
			}
			continue
		}
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

func openFound(found []bundlereader.Found) (files []*bundlereader.File, err error) {
	for _, f := range found {
		file, err := bundlereader.OpenPath(f.Path)
		if err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

func closeAll(files []*bundlereader.File) {
	for _, f := range files {
		_ = f.Close() // it was read only
	}
}

// verify compares the bundles with the trusted digests or keys, and reads all bytes with --check.
func (o serveOptions) verify(c *cobra.Command, files []*bundlereader.File) error {
	keys := map[string]ed25519.PublicKey{}
	for _, p := range o.pubs {
		k, err := inputs.ReadPublicKey(p)
		if err != nil {
			return err
		}
		keys[p] = k
	}
	unused := slices.Clone(o.digests)
	for _, f := range files {
		if err := o.verifyOne(c, f, keys); err != nil {
			return err
		}
		unused = slices.DeleteFunc(unused, func(d string) bool { return d == f.Header().Digest })
	}
	if len(unused) > 0 {
		return console.WithExit(console.ExitVerification, fmt.Errorf("no bundle with digest %s found", unused[0]))
	}
	return nil
}

func (o serveOptions) verifyOne(c *cobra.Command, f *bundlereader.File, keys map[string]ed25519.PublicKey) error {
	digest := strings.Join(o.digests, " or ")
	if slices.Contains(o.digests, f.Header().Digest) {
		digest = f.Header().Digest
	}
	if err := checkTrust(f.Header(), digest, keys); err != nil {
		return console.WithExit(console.ExitVerification, err)
	}
	if err := f.CheckSize(); err != nil || !o.check {
		return err
	}
	bar := newProgress(c.ErrOrStderr(), "verifying")
	err := bundlereader.Verify(c.Context(), f, bar.set)
	bar.finish(err == nil)
	return err
}

// usage prints what is served, what was verified, and how clients use it.
func (o serveOptions) usage(w io.Writer, s *bundleserver.Server, files []*bundlereader.File, address net.Addr, secure bool) error {
	var b strings.Builder
	scheme, host := "http", hostOf(address)
	mirrorOption, copyOption := "\n  insecure = true", "--src-tls-verify=false "
	if secure {
		scheme, mirrorOption, copyOption = "https", "", ""
	}
	for _, f := range files {
		m := f.Header().Metadata
		fmt.Fprintf(&b, "Bundle %s %s %s: %s\n", m.Name, m.Version, f.Header().Digest, text.Count(len(m.Images), "image"))
	}
	fmt.Fprintf(&b, "Source: %s\nContents: %s\n", o.trustText(), o.contentText())
	fmt.Fprintf(&b, "Registry: %s://%s, read-only; Ctrl-C stops it\n", scheme, host)
	fmt.Fprintf(&b, "\ncontainerd, /etc/containerd/certs.d/_default/hosts.toml:\n  [host.\"%s://%s\"]\n    capabilities = [\"pull\", \"resolve\"]\n", scheme, host)
	b.WriteString("\nCRI-O, Podman and skopeo, /etc/containers/registries.conf.d/50-refit.conf:\n")
	for _, r := range registriesOf(s.Repositories()) {
		fmt.Fprintf(&b, "  [[registry]]\n  location = %q\n  [[registry.mirror]]\n  location = %q%s\n", r, host+"/"+aliasOf(r), mirrorOption)
	}
	fmt.Fprintf(&b, "\nDocker, /etc/docker/daemon.json, for images of Docker Hub only:\n  {\"registry-mirrors\": [\"%s://%s\"]}\n", scheme, host)
	if image := firstImage(files); image != "" {
		fmt.Fprintf(&b, "\nOne image:\n  skopeo copy %sdocker://%s/%s dir:image\n  crane pull %s/%s image.tar\n", copyOption, host, image, host, image)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// firstImage returns the first image that clients can name with a tag, under its name here.
func firstImage(files []*bundlereader.File) string {
	for _, f := range files {
		for _, i := range f.Header().Metadata.Images {
			repo, tag := bundleserver.SplitName(i.Name)
			if alias := bundleserver.Alias(repo); tag != "" && alias != "" {
				return alias + ":" + tag
			}
		}
	}
	return ""
}

func (o serveOptions) trustText() string {
	switch {
	case len(o.digests) > 0 && len(o.pubs) > 0:
		return "verified, the digest is the expected one, and a given key signed it"
	case len(o.digests) > 0:
		return "verified, the digest is the expected one"
	case len(o.pubs) > 0:
		return "verified, a given key signed it"
	}
	return "NOT VERIFIED; name a digest with --digest or a key with --pub"
}

func (o serveOptions) contentText() string {
	if o.check {
		return "every byte verified before the start, and again while it is served"
	}
	return "not read yet; each blob is verified while it is served"
}

// aliasOf returns the registry of images as the first part of a repository's name.
func aliasOf(registry string) string {
	return strings.TrimSuffix(bundleserver.Alias(registry+"/x"), "/x")
}

// hostOf returns how clients write the address. One for all of the machine has no name here.
func hostOf(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if ok && t.IP.IsUnspecified() {
		return fmt.Sprintf("THIS-MACHINE:%d", t.Port)
	}
	return a.String()
}

// registriesOf returns the registries of repositories that clients can reach through a path.
func registriesOf(repositories []string) []string {
	var out []string
	for _, name := range repositories {
		host, _, ok := strings.Cut(name, "/")
		if ok && bundleserver.Alias(name) != "" && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}
