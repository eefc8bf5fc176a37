package service

import (
	"os"

	"github.com/refit-dev/refit/internal/distribution"
)

// placeOf returns a place of the node: that of its distribution where one unit starts everything,
// "" if it has none, and on other nodes that of kubeadm.
func (h *nodeHost) placeOf(what, kubeadm string) string {
	if h.supervised == nil {
		return kubeadm
	}
	return h.supervised.Place(what)
}

// isSupervisor reports whether a file is the program that starts everything.
func (h *nodeHost) isSupervisor(path string) bool {
	if h.supervised == nil {
		return false
	}
	is, err := os.Stat(path)
	if err != nil {
		return false
	}
	supervisor, err := os.Stat(h.supervised.Program)
	return err == nil && os.SameFile(is, supervisor)
}

// StaticPodDir returns the directory from which the kubelet reads static pods, "" if it reads none.
func (h *nodeHost) StaticPodDir() string {
	return h.placeOf(distribution.WhatStaticPods, distribution.KubeadmPlaces().StaticPods)
}

// Distribution returns the row of the node; kubeadm's where the kubelet has a unit of its own.
func (h *nodeHost) Distribution() distribution.Row {
	name := distribution.Kubeadm
	if h.supervised != nil {
		name = h.supervised.Distribution
	}
	row, _ := distribution.ByName(name)
	return row
}
