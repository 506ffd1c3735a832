// Package proof holds the randomized checker of the lane protocol: real servers,
// workers and raider processes, faults, and a check of the history that they leave.
// All of it is test code.
package proof
