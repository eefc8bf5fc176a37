package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// release is what all steps share.
type release struct {
	version, binaries, output, key, url string
	// date of all files: that of the commit.
	date time.Time
}

func main() {
	if err := command().Execute(); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	r := &release{}
	c := &cobra.Command{
		Use: "release --version VERSION --binaries DIR --output DIR", Short: "Pack built programs into the files of a release",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error { return r.run() },
	}
	f := c.Flags()
	f.StringVar(&r.version, "version", "", "version, without a v")
	f.StringVar(&r.binaries, "binaries", "", "directory with one directory of programs for each platform, such as linux-amd64")
	f.StringVar(&r.output, "output", "dist", "directory to make; it is replaced")
	f.StringVar(&r.key, "key", "", "private key that signs SHA256SUMS, as refit keygen writes it")
	f.StringVar(&r.url, "url", "https://github.com/refit-dev/refit/releases/download", "where the archives will be, for the krew manifest")
	for _, name := range []string{"version", "binaries"} {
		_ = c.MarkFlagRequired(name)
	}
	c.AddCommand(siteCommand(), versionsCommand())
	return c
}

// run makes the directory next to its place and renames it at the end.
func (r *release) run() error {
	var err error
	if r.date, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	platforms, err := r.platforms()
	if err != nil {
		return err
	}
	to := r.output
	r.output = to + ".new"
	if err := os.RemoveAll(r.output); err != nil {
		return err
	}
	if err := os.MkdirAll(r.output, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(r.output) // a no-op after the rename
	if err := r.pack(platforms); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(r.output, to)
}

func (r *release) pack(platforms []platform) error {
	pages, err := r.pages(platforms)
	if err != nil {
		return err
	}
	for _, p := range platforms {
		for _, product := range products(p, pages) {
			if err := r.archive(p, product); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
			if err := r.sbom(p, product); err != nil {
				return fmt.Errorf("SBOM of %s for %s: %w", product.name, p, err)
			}
		}
		if err := r.debianPackage(p); err != nil {
			return fmt.Errorf("package of %s for Debian: %w", p, err)
		}
	}
	for _, step := range []func([]platform) error{r.image, r.providersImage, r.static, r.chart, r.krew, r.documentation} {
		if err := step(platforms); err != nil {
			return err
		}
	}
	return r.checksums()
}

// sourceDate reads SOURCE_DATE_EPOCH, the date of all files: https://reproducible-builds.org/specs/source-date-epoch/
func sourceDate(seconds string) (time.Time, error) {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: set it to the date of the commit in seconds, as make release does", seconds)
	}
	return time.Unix(n, 0).UTC(), nil
}

// platform is a system and an architecture that programs are built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

func (p platform) dir() string { return p.os + "-" + p.arch }

// program is the file name of a program.
func (p platform) program(name string) string {
	if p.os == "windows" {
		return name + ".exe"
	}
	return name
}

// product is what people download and install together: an archive with its SBOM.
type product struct {
	name     string
	programs []string
	pages    []packed
}

// providers is the name of the optional program that asks clouds, and of its archive and image.
const providers = "refit-providers"

// products are the archives of a platform: refit's programs, on Linux all of them, elsewhere the
// command line. refit-providers is optional and has many more modules, so it is an archive of its own.
func products(p platform, pages []packed) []product {
	if p.os != "linux" {
		return []product{{"refit", []string{p.program("refit"), p.program("refit-render")}, pages}}
	}
	guide := packed{name: "ask-clouds-for-boot-images.md", from: filepath.Join("docs", "how-to", "ask-clouds-for-boot-images.md"), mode: 0o644}
	return []product{
		{"refit", []string{"refit", "refit-render", "refit-agent", "refit-controller"}, pages},
		{providers, []string{providers}, []packed{guide}},
	}
}

// programs are those of all products.
func (p platform) programs() []string {
	var out []string
	for _, product := range products(p, nil) {
		out = append(out, product.programs...)
	}
	return out
}

// platforms are the directories that are there; Linux on both architectures must be.
func (r *release) platforms() ([]platform, error) {
	entries, err := os.ReadDir(r.binaries)
	if err != nil {
		return nil, err
	}
	var out []platform
	linux := 0
	for _, e := range entries {
		system, arch, ok := strings.Cut(e.Name(), "-")
		if !ok || !e.IsDir() {
			return nil, fmt.Errorf("%s is no directory of a platform such as linux-amd64: remove it", filepath.Join(r.binaries, e.Name()))
		}
		p := platform{system, arch}
		for _, name := range p.programs() {
			if _, err := os.Stat(filepath.Join(r.binaries, p.dir(), name)); err != nil {
				return nil, fmt.Errorf("%s: %w: make release builds it", p, err)
			}
		}
		if system == "linux" {
			linux++
		}
		out = append(out, p)
	}
	if linux == 0 {
		return nil, fmt.Errorf("%s has no programs for Linux: make release builds them", r.binaries)
	}
	return out, nil
}

// archiveName is the file name of the archive of a product for a platform.
func (r *release) archiveName(p platform, product string) string {
	end := ".tar.gz"
	if p.os == "windows" {
		end = ".zip"
	}
	return fmt.Sprintf("%s_%s_%s_%s%s", product, r.version, p.os, p.arch, end)
}
