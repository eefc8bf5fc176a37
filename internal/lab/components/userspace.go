package components

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// kube-proxy programs the kernel through the iptables family and nft: its image
// carries Debian's, with every library they load. The plugins matter too:
// without libm (libxt_statistic.so wants it) iptables-restore fails as soon as a
// Service has two endpoints, and Services rot silently.

var triplet = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]

func libraryDirs() []string {
	return []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
}

func pluginDir() string { return "/usr/lib/" + triplet + "/xtables" }

// filterTools returns nft and iptables with plugins and libraries, by path in the image.
func filterTools() (map[string]entry, error) {
	programs := []string{"/usr/sbin/nft", "/usr/sbin/xtables-nft-multi", "/usr/sbin/xtables-legacy-multi"}
	plugins, err := filepath.Glob(pluginDir() + "/*.so")
	if err != nil {
		return nil, err
	}
	if len(plugins) == 0 {
		return nil, fmt.Errorf("no iptables plugins in %s: install the Debian package iptables", pluginDir())
	}
	files := map[string]entry{}
	for _, p := range append(programs, plugins...) {
		files[strings.TrimPrefix(p, "/")] = entry{source: p}
		if err := addLibraries(files, p); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		files["usr/sbin/"+name] = entry{link: "xtables-nft-multi"}
	}
	return files, nil
}

// addLibraries adds what the dynamic linker will look for when program starts.
func addLibraries(files map[string]entry, program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	defer f.Close()
	wanted, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	if linker := interpreter(f); linker != "" {
		files[strings.TrimPrefix(linker, "/")] = entry{source: linker}
	}
	for _, name := range wanted {
		path, err := findLibrary(name)
		if err != nil {
			return fmt.Errorf("%s needs %s: %w", program, name, err)
		}
		if _, have := files[strings.TrimPrefix(path, "/")]; have {
			continue
		}
		files[strings.TrimPrefix(path, "/")] = entry{source: path}
		if err := addLibraries(files, path); err != nil {
			return err
		}
	}
	return nil
}

func findLibrary(name string) (string, error) {
	for _, dir := range libraryDirs() {
		if path := filepath.Join(dir, name); exists(path) {
			return path, nil
		}
	}
	return "", errors.New("not found in " + strings.Join(libraryDirs(), ", "))
}

func interpreter(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		data := make([]byte, p.Filesz)
		if _, err := p.ReadAt(data, 0); err != nil {
			return ""
		}
		return strings.TrimRight(string(data), "\x00")
	}
	return ""
}

// fingerprint changes whenever one of the files of this machine does.
func fingerprint(files map[string]entry) string {
	var parts []string
	for _, name := range sortedKeys(files) {
		e := files[name]
		parts = append(parts, name, e.link, string(e.data))
		if e.folder || e.capability != 0 { // the others keep the names that they have
			parts = append(parts, fmt.Sprint(e.mode, e.capability))
		}
		if info, err := os.Stat(e.source); err == nil {
			parts = append(parts, fmt.Sprint(info.Size(), info.ModTime().UnixNano()))
		}
	}
	return key(parts...)
}
