# Checkpoints: sealed before they come here. Hangar prunes them itself.
resource "google_storage_bucket" "sessions" {
  name                        = coalesce(var.session_bucket_name, "${var.project}-${var.name}-sessions")
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = !var.deletion_protection

  # Objects are written once and never over, so there are no older versions. What was deleted can be got back for a week, as
  # Google Cloud has it by default (soft delete).
  versioning {
    enabled = false
  }

  # None by default: a suspended session's newest checkpoint is its only copy.
  dynamic "lifecycle_rule" {
    for_each = var.session_retention_days > 0 ? [var.session_retention_days] : []

    content {
      action {
        type = "Delete"
      }

      condition {
        age = lifecycle_rule.value
      }
    }
  }

  depends_on = [google_project_service.needed]
}

resource "google_artifact_registry_repository" "images" {
  repository_id = var.name
  location      = var.region
  format        = "DOCKER"
  description   = "Hangar's images, and those that it builds for environments"

  depends_on = [google_project_service.needed]
}
