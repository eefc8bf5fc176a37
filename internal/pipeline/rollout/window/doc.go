// Package window answers when maintenance windows are open.
//
// Promise: pure arithmetic of times; the zone is part of the window, the clock an
// argument. Windows that touch or overlap are one. Where the clocks are set, a
// window opens at its time of day and stays open as long as it says.
//
// Inputs: Window, a time. Outputs: Fit, Openness. Callers: rollout and forecast.
package window
