variable "project" {
  description = "The Google Cloud project that everything is made in."
  type        = string
}

variable "region" {
  description = "The region of the bucket, Redis, the registry and the subnet."
  type        = string
  default     = "europe-west1"
}

variable "zone" {
  description = "The zone of the cluster and its nodes. Null: the region's zone b."
  type        = string
  default     = null
}

variable "name" {
  description = "In front of every name, so that two Hangars fit into one project."
  type        = string
  default     = "hangar"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,14}[a-z0-9]$", var.name))
    error_message = "Give 2 to 16 lower-case letters, digits and dashes."
  }
}

variable "session_bucket_name" {
  description = "The checkpoint bucket's name, unique in all of Google Cloud. Null: the project's id and the name."
  type        = string
  default     = null
}

variable "session_retention_days" {
  description = "After how many days the bucket deletes a checkpoint. 0: never. A suspended session's newest checkpoint is its only copy, and Hangar prunes older ones itself, so leave it at 0 unless losing old sessions is what you want."
  type        = number
  default     = 0

  validation {
    condition     = var.session_retention_days >= 0 && floor(var.session_retention_days) == var.session_retention_days
    error_message = "Give a whole number of days, or 0 for never."
  }
}

variable "coordinator_machine_type" {
  description = "The machines of the pool that coordinators run on."
  type        = string
  default     = "e2-standard-2"
}

variable "sandbox_machine_type" {
  description = "The machines of the pool that sandboxes run on."
  type        = string
  default     = "n2-standard-8"
}

variable "sandbox_max_nodes" {
  description = "How far the sandbox pool grows. It shrinks to none."
  type        = number
  default     = 10
}

variable "sandbox_spot" {
  description = "Sandboxes on spot machines: cheaper, and taken back with 30 seconds' notice. Changing it makes the pool's nodes anew: suspend sessions first."
  type        = bool
  default     = false
}

variable "sandbox_disk_gb" {
  description = "A sandbox node's boot disk, GB. Null: the provider's default. 100 is the advice: pd-balanced counts against the SSD quota (500 GB in a new project), which otherwise stops scale-up after a few nodes. Changing it makes the pool's nodes anew: suspend sessions first."
  type        = number
  default     = null
}

variable "image_streaming" {
  description = "GKE image streaming for the sandbox pool: pods start before their image is pulled whole. Changing it makes the pool's nodes anew: suspend sessions first."
  type        = bool
  default     = false
}

variable "sandbox_gvisor" {
  description = "GKE Sandbox (gVisor) on the sandbox pool; environments then say `runtime_class: gvisor`."
  type        = bool
  default     = false
}

variable "redis_memory_gb" {
  description = "Memorystore's size, GB."
  type        = number
  default     = 1
}

variable "authorized_networks" {
  description = "From where the cluster's control plane may be reached, by CIDR range and name. Empty: from anywhere, with credentials."
  type        = map(string)
  default     = {}
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to destroy the cluster and a bucket that holds checkpoints."
  type        = bool
  default     = true
}
