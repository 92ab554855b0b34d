output "cluster" {
  description = "For gcloud container clusters get-credentials."
  value       = { name = google_container_cluster.hangar.name, location = google_container_cluster.hangar.location }
}

output "session_bucket" {
  description = "HANGAR_SESSION_STORE is gs:// and this."
  value       = google_storage_bucket.sessions.name
}

output "redis_url" {
  description = "The Secret's redis-url."
  value       = "redis://:${google_redis_instance.hangar.auth_string}@${google_redis_instance.hangar.host}:${google_redis_instance.hangar.port}"
  sensitive   = true
}

output "registry" {
  description = "In front of images' names."
  value       = "${google_artifact_registry_repository.images.location}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.name}"
}

output "coordinator_service_account" {
  description = "The annotation iam.gke.io/gcp-service-account of the Kubernetes service account hangar-coordinator."
  value       = google_service_account.coordinator.email
}

output "build_service_account" {
  description = "HANGAR_CLOUD_BUILD_SERVICE_ACCOUNT: who environments' builds run as."
  value       = google_service_account.build.email
}

output "cloud_build" {
  description = "HANGAR_CLOUD_BUILD."
  value       = "projects/${var.project}/locations/${var.region}"
}

output "vault_key_secret" {
  description = "The Secret Manager secret for the vault's key."
  value       = google_secret_manager_secret.vault_key.secret_id
}

output "token_secret" {
  description = "The Secret Manager secret for the administrator's token."
  value       = google_secret_manager_secret.token.secret_id
}
