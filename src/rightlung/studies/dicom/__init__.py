"""DICOM radiographs: `read_dicom` gives the picture and what the header says about view, side and body part.

Needs the extra ``dicom`` (pydicom), which is imported when the first file is read. Only elements on a short list
(`rightlung.studies.dicom.header`) are ever looked at; names, numbers and dates of patients are not among them.
"""

from rightlung.studies.dicom.header import is_dicom
from rightlung.studies.dicom.reading import DicomImage, read_dicom

__all__ = ["DicomImage", "is_dicom", "read_dicom"]
